"""Tests of `holdfast.scheduler.framework.config`."""
