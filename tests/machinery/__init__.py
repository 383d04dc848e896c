"""Tests of `holdfast.machinery`."""
