"""Which nodes are feasible for a pod class, and how they score; kept up to date incrementally."""
