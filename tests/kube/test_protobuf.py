"""Objects in binary form."""

from __future__ import annotations

import pytest

from holdfast.kube.protobuf import NotProtobuf, with_protobuf_finalizer

KIND = b"\x0a\x04kind"
"""The first field of an `Unknown`."""
OBJECT = b"\x0a\x03abc" + b"\x12\x02xy"
REST = b"\x1a\x00\x22\x00"


def test_a_finalizer_is_appended_to_the_object() -> None:
    before = b"k8s\x00" + KIND + b"\x12" + bytes([len(OBJECT)]) + OBJECT + REST
    added = b"\x0a\x05\x72\x03f/g"
    after = b"k8s\x00" + KIND + b"\x12" + bytes([len(OBJECT + added)]) + OBJECT + added + REST
    assert with_protobuf_finalizer(before, "f/g") == after


def test_lengths_may_take_several_bytes() -> None:
    long = b"\x0a\xac\x02" + b"x" * 300
    before = b"k8s\x00\x12\xaf\x02" + long
    after = with_protobuf_finalizer(before, "f/g")
    assert after == b"k8s\x00\x12\xb6\x02" + long + b"\x0a\x05\x72\x03f/g"


@pytest.mark.parametrize(
    "content", [b"{}", b"k8s\x00\x12\x05ab", b"k8s\x00\x12\xff", b"k8s\x00\x0d\x00\x00\x00\x00"]
)
def test_other_answers_are_refused(content: bytes) -> None:
    with pytest.raises(NotProtobuf):
        with_protobuf_finalizer(content, "f")
