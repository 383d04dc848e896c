"""What a request does to objects, without HTTP: each verb takes an `Call` and returns objects.

    get           get, list, continue tokens
    writes        create, update, delete, deletecollection; request bodies to objects
    patch         the four kinds of patch, server-side apply among them
    subresources  binding, eviction, scale, access reviews

Verbs raise `StatusError`. Nothing is awaited between reading an object and writing it, so requests are
serialized.
"""
