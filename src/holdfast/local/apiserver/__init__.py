"""A Kubernetes API over HTTP, served from the local store.

    server                       authentication, discovery, dispatch
    request_info, negotiation    what a URL asks for; the form of the response
    object_handler, watch        requests about objects; watches and their bookmarks
    verbs                        create, get, list, update, patch, delete and subresources, without HTTP
    strategies                   the rules of single kinds
    tables                       the columns of `kubectl get`
    crd_registry, versions       kinds that CustomResourceDefinitions add; conversion between versions
    request_bodies, protobuf     JSON, YAML and protobuf bodies
    responses, status            encoded objects; `Status` errors
    selection, discovery         label and field selectors; discovery documents
    credentials                  the certificate authority and the token
    workers, template_memo       large requests in threads; validation results of equal pod templates
    api_state, field_errors      what requests share; field errors in Kubernetes' words

May import `local`, `machinery`, `serving` and the layers below.
"""
