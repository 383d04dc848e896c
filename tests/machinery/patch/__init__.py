"""Tests of `holdfast.machinery.patch`."""
