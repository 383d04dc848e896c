"""Tests of `holdfast.scheduler.framework.feasibility`."""
