"""Tests of `holdfast.local.apiserver`, over HTTP."""
