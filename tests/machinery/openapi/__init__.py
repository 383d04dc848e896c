"""Tests of `holdfast.machinery.openapi`."""
