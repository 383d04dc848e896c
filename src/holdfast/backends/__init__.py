"""What carries decisions out and feeds back what happened. The only place for network I/O
besides the server. May import every layer below.
"""
