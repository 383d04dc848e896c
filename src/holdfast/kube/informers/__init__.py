"""The objects of an API server as events for the scheduler.

reflector  one per kind: list, watch, bookmarks, relist; the index of known objects
decoding   the watched kinds; the server's bytes to typed objects, invalid ones left out
"""
