"""Tests of `holdfast.scheduler.framework`."""
