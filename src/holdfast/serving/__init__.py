"""HTTP serving that the local API server and the metrics port share.

    listener  accepts connections within limits
    limits    limits per client and in total
    health    health, metrics, configuration and version endpoints

May import `api`.
"""
