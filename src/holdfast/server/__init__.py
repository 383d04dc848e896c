"""The embedded API server, metrics and health. May import `backends` and below."""
