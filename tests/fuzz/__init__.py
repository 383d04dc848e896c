"""Random requests to `holdfast up`, which must answer, log nothing and continue."""
