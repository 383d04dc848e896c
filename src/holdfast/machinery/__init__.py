"""What an API server does to an object, over raw objects: strict decoding, defaults, validation,
patches and server-side apply. The local API server, `simulate` and the command line use it. May import
`api`.
"""
