"""Talking to the server.

client      requests, with or without retries, and watches
wire        short requests at a third of what the general library takes
paths       where kinds and objects are
backoff     how long to wait before trying again
reach       whether the server can be reached
rate        how many requests a second are allowed
"""
