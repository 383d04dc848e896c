"""Tests of `holdfast.scheduler.cluster`."""
