"""Random events in any order: after each, the state is compared with one computed from scratch."""
