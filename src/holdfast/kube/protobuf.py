"""The binary form in which the API server reads and writes objects, as far as it is needed: an object
that was read gets one more finalizer, and all other bytes stay.

    object    "k8s\\0", then the fields of `Unknown`; of which field 2 is the object itself
    field     a number for which field it is and how long, then its content

A field that comes twice is merged with the first one, so that metadata with nothing but a finalizer can
be appended.
"""

from holdfast.api.errors import HoldfastError

PROTOBUF = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"
_OBJECT = 2
_METADATA, _FINALIZERS = 1, 14
_VARINT, _LENGTH = 0, 2


class NotProtobuf(HoldfastError):
    """An answer that is not an object in binary form."""


def with_protobuf_finalizer(content: bytes, finalizer: str) -> bytes:
    """The object with one more finalizer. Raises NotProtobuf."""
    if not content.startswith(_MAGIC):
        raise NotProtobuf("the answer is not in protobuf format")
    found, at = [_MAGIC], len(_MAGIC)
    while at < len(content):
        begin = at
        tag, at = _number(content, at)
        field, kind = tag >> 3, tag & 7
        size, at = _number(content, at)
        if kind == _LENGTH:
            at += size
        elif kind != _VARINT:
            raise NotProtobuf(f"field {field} of the answer has an unknown type")
        if at > len(content):
            raise NotProtobuf("the answer ends within a field")
        if field == _OBJECT:
            metadata = _field(_METADATA, _field(_FINALIZERS, finalizer.encode()))
            found.append(_field(_OBJECT, content[at - size : at] + metadata))
        else:
            found.append(content[begin:at])
    return b"".join(found)


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | _LENGTH) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    made = bytearray()
    while number > 127:
        made.append(number & 127 | 128)
        number >>= 7
    made.append(number)
    return bytes(made)


def _number(content: bytes, at: int) -> tuple[int, int]:
    """The number at a place, and the place behind it."""
    value = shift = 0
    while at < len(content):
        byte = content[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
    raise NotProtobuf("the answer ends within a number")
