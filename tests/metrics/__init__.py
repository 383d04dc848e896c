"""Tests of `holdfast.metrics`."""
