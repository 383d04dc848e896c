"""Tests of `holdfast.plugin`: what plugin authors import, install and test with."""
