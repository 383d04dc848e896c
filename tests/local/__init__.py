"""Tests of `holdfast.local`: the local cluster, and `holdfast up` as a process."""
