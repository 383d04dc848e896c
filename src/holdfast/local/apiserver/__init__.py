"""The embedded Kubernetes API over HTTP.

    server       the application: authentication, discovery, dispatch
    objects      requests about objects, from HTTP to a verb and back
    streams      watches over HTTP
    verbs        what can be done to objects, apart from HTTP
    strategies   what is particular about a kind
    tables       what `kubectl get` prints
    the rest     one thing each: paths, options, negotiation, bodies, selection, errors …

May import `store`, `backends`, `server.schema`, `server.patch` and below.
"""
