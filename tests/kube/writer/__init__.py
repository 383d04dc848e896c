"""Tests of `holdfast.kube.writer`."""
