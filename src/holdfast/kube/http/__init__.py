"""The HTTP client of an API server.

client        requests, with or without retries; watches; paths of kinds and objects
connections   HTTP/1.1 over a pool of kept connections
flow_control  back-off, reachability, client-side rate limit
"""
