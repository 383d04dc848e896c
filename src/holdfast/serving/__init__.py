"""HTTP serving that the local API server and the metrics port share.

    listener  accepts connections within limits
    limits    limits per client and in total
    unsent    bytes that wait to be sent, counted over all clients
    health    health, metrics, configuration and version endpoints

May import `api`.
"""
