"""What the server has, as events for the core.

watched      the kinds that are read, and which of their objects
decoding     from the server's bytes to typed objects, past those that make no sense
mirror       which objects are known, and in which version; what a list of all of them changes
reflector    one per kind: list, watch, and what to do when either fails
"""
