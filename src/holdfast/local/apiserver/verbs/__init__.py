"""What a request does to objects, without HTTP: each verb takes a `Call` and returns objects.

    get             get, list, continue tokens
    decode          a request body to an object of its type
    create, update  create; update, and the rules of every change
    patch           the four kinds of patch
    delete          delete, deletecollection
    subresources    binding, eviction, scale, access reviews

Verbs raise `StatusError`. Nothing is awaited between reading an object and writing it, so requests are
serialized.
"""
