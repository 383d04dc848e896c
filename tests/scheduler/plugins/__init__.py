"""Tests of `holdfast.scheduler.plugins`, one file for each plugin."""
