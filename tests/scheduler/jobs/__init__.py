"""Tests of `holdfast.scheduler.jobs`."""
