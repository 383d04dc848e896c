"""Tests of `holdfast.sim.audit`."""
