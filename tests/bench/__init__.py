"""Tests of `holdfast.bench`."""
