"""Tests of `holdfast.serving`."""
