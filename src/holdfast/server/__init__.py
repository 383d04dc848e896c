"""What is served: the embedded API server, metrics and health. May import `backends` and below.

api            the embedded API server
schema, patch  what it knows of objects' fields, and of changing them
applying       manifests of files, applied to it
up             all that `holdfast up` is made of
running        all that `holdfast run` is made of
provisioning   all that `holdfast provisioner` is made of
service        what those two share: a lease to work under, health, an end
health         `/healthz`, `/metrics` and their like
listener       accepts connections within limits
limits         all of these, with their reasons
rare_log       a log that clients cannot fill
turns          of the event loop, for work that many requests have at once
"""
