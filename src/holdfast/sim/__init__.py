"""The virtual clock, simulated kubelets, scenarios, traces. May import `backends` and below."""
