"""A Kubernetes API over HTTP, served from the local store.

    server                       authentication, discovery, dispatch
    request_info                 the parsed URL and query of a request
    object_handler, watch        requests about objects; watches and their bookmarks
    verbs                        create, get, list, update, patch, delete and subresources, without HTTP
    tables                       the columns of `kubectl get`
    crd_registry                 kinds that CustomResourceDefinitions add
    request_bodies, protobuf     JSON, YAML and protobuf bodies
    responses                    content negotiation; encoded objects
    selection, discovery         label and field selectors; discovery documents
    credentials                  the certificate authority and the token
    system_objects               namespaces and the Service `kubernetes`, which the server keeps
    workers                      large requests in threads
    api_state                    what requests share; pods of one template

What a write does to an object is in `machinery`.

May import `local`, `machinery`, `serving` and the layers below.
"""
