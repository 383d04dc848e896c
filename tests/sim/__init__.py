"""Tests of `holdfast.sim`: scenarios as users write them."""
