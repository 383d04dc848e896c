"""A second scheduler, slow and plain, with which the fast one must agree on random clusters."""
