"""Tests of `holdfast.local.store`."""
