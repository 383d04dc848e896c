"""Tests of `holdfast.scheduler.managers.devices`."""
