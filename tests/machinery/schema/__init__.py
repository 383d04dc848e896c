"""Tests of `holdfast.machinery.schema`."""
