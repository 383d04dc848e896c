"""Tests of `holdfast.scheduler`; each folder tests the package of its name."""
