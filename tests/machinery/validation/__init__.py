"""Tests of `holdfast.machinery.validation`."""
