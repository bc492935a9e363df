"""What is no message of a kind is refused, and a message has one encoding."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.dp.refusal import Refused
from sfumato.dp.secure_aggregation.collector import _by_place
from sfumato.dp.secure_aggregation.message_encoding import decode_fields, encode_fields

KINDS = ("seats", "rooms", "seat", "")
FIELDS = st.lists(st.binary(max_size=9), max_size=4)


@given(kind=st.sampled_from(KINDS), fields=FIELDS)
def test_a_message_is_read_back_as_its_own_kind_alone(kind: str, fields: list[bytes]) -> None:
    message = encode_fields(kind, *fields)
    assert decode_fields(message, kind) == decode_fields(message, kind, len(fields)) == fields
    for other in {*KINDS} - {kind}:
        with pytest.raises(Refused):
            decode_fields(message, other)
    with pytest.raises(Refused):
        decode_fields(message, kind, len(fields) + 1)


def test_a_message_is_written_as_every_version_has_written_it() -> None:
    written = b"sfum-sum/1\x04seat\x02\0\0\0\x01\0\0\0\0\0\0\0a\x02\0\0\0\0\0\0\0bc"
    assert encode_fields("seat", b"a", b"bc") == written


@given(
    fields=FIELDS,
    at=st.integers(0, 60),
    instead=st.binary(max_size=3),
    cut=st.integers(0, 3),
)
def test_whatever_is_read_is_what_its_fields_are_written_as(
    fields: list[bytes], at: int, instead: bytes, cut: int
) -> None:
    message = encode_fields("seats", *fields)
    message = message[:at] + instead + message[at + cut :]
    with suppress(Refused):
        assert encode_fields("seats", *decode_fields(message, "seats")) == message


@pytest.mark.parametrize(
    "message", [None, "", 3, bytearray(encode_fields("seats")), b"", encode_fields("seats")[:-1]]
)
def test_what_is_no_whole_message_is_refused(message: object) -> None:
    with pytest.raises(Refused):
        decode_fields(message, "seats")  # type: ignore[arg-type]  # it comes from strangers


@given(places=st.lists(st.integers(0, 4), max_size=4))
def test_what_is_said_of_each_place_is_said_once_and_in_order(places: list[int]) -> None:
    field = encode_fields("sealed", *(place.to_bytes(8, "little") + b"said" for place in places))
    if places == sorted(set(places)):
        assert _by_place(field, "sealed", 4) == dict.fromkeys(places, b"said")
    else:
        with pytest.raises(Refused):
            _by_place(field, "sealed", 4)
