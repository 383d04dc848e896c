"""Windows for a reservation with a start: when capacity will be free, and what would have to be
evicted for it."""
