"""Tests of `holdfast.cli`: the commands as a user calls them."""
