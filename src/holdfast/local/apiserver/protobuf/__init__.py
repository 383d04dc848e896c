"""Decodes Kubernetes' protobuf, which kubectl sends for the kinds it knows.

    decode   request bodies
    openapi  the OpenAPI version 2 document, the only one that kubectl takes as protobuf

Responses are JSON, which every client that sends protobuf accepts. `fields.json` has the fields of each
message by number: the JSON name ("" for an embedded message), the type, and whether a zero value is
written or omitted.

Types: `s` string, `b` boolean, `i` integer, `d` double, `y` bytes, `!Time` and the like for types with
a JSON form of their own, the name of a message, or a list or map of one of these.
"""

from holdfast.local.apiserver.protobuf.decode import MEDIA_TYPE, ProtobufError, decode

__all__ = ["MEDIA_TYPE", "ProtobufError", "decode"]
