"""Tests of `holdfast.machinery.schema.custom`."""
