"""Every scenario of `examples/` in a simulation, on a served local cluster and on a real API server."""
