"""Tests of `holdfast.kube`, on a model API server in memory and on a real one."""
