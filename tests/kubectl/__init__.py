"""The real kubectl against the local API server."""
