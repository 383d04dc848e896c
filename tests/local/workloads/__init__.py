"""Tests of `holdfast.local.workloads`."""
