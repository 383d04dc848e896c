"""Tests of `holdfast.api`."""
