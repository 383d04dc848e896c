"""Tests of `holdfast.scheduler.managers`."""
