"""What an API server does to an object, over raw objects. The local API server, `simulate` and the
command line share it.

    schema                    types, strict decoding, defaults, validation by schema
    objects, object_request   create, update, delete: what a write does to an object; the request
    strategies                the rules of single kinds: admission, preparation, update rules
    validation                rules of the built-in kinds, in the API server's words
    pod_subresources          binding and eviction of pods
    status                    the errors of refused requests
    patch                     JSON, merge and strategic patches; server-side apply
    openapi                   OpenAPI documents
    dynamic_reservations      annotations between pods and provisioners

May import `api`.
"""
