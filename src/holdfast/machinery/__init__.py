"""What an API server does to an object, over raw objects. The local API server, `simulate` and the
command line share it.

    objects                 create, update, delete: what a write does to an object
    pod_subresources        binding and eviction of pods
    dynamic_reservations    annotations between pods and provisioners
    strategies              the rules of single kinds: admission, preparation, update rules
    object_request          the write of one object, as its rules see it
    validation              field errors of decoded objects, in the API server's words
    patch                   JSON, merge and strategic patches; server-side apply; managed fields
    openapi                 OpenAPI documents
    status                  the errors of refused requests
    schema                  types, strict decoding, defaults, validation by schema

Each imports only from those below it. May import `api`.
"""
