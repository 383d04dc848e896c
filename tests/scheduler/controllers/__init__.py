"""Tests of `holdfast.scheduler.controllers`."""
