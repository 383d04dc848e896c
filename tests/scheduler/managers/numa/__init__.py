"""Tests of `holdfast.scheduler.managers.numa`."""
