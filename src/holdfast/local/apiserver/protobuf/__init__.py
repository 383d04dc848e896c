"""Reading Kubernetes' protobuf, which kubectl writes for the kinds it knows.

It is only read: answers are JSON, which every client that writes protobuf takes as well.
`fields.json` holds, for each message, its fields by number: the JSON name ("" for one whose fields
belong to the message around it), the type, and whether a zero is said or means that nothing was.

Types: `s` text, `b` true or false, `i` whole number, `d` number, `y` bytes, `!Time` and the like for
what JSON writes in its own way, the name of a message, or a list or map of one of these.
"""

from holdfast.local.apiserver.protobuf.decode import MEDIA_TYPE, ProtobufError, decode

__all__ = ["MEDIA_TYPE", "ProtobufError", "decode"]
