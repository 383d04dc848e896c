"""Tests of `holdfast.scheduler.actions`."""
