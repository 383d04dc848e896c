"""Tests of `holdfast.scheduler.managers.volumes`."""
