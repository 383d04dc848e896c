"""Tests of `holdfast.scheduler.reservations`."""
