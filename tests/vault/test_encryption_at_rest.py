"""What is sealed tells nothing, and whatever was changed, cut, moved or renamed is refused."""

from __future__ import annotations

import hashlib
from io import BytesIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.system.randomness import SystemRandomSource
from sfumato.vault.encryption_at_rest import MAGIC, PIECE, AtRest, DecryptionError

KEY = bytes(range(32))
HEAD = len(MAGIC) + 32
SEALED_PIECE = PIECE + 16
SIZES = (0, 1, 31, PIECE - 1, PIECE, PIECE + 1, 2 * PIECE, 2 * PIECE + 5)


def rest(key: bytes = KEY) -> AtRest:
    return AtRest(key, SystemRandomSource().draw)


def content_of(size: int) -> bytes:
    return hashlib.shake_128(b"content").digest(size)


@pytest.mark.parametrize("size", SIZES)
def test_what_was_sealed_is_read_again_in_whatever_parts_it_came(size: int) -> None:
    content = content_of(size)
    for part in (1 << 16, PIECE, PIECE + 7, size + 1):
        parts = (content[at : at + part] for at in range(0, size, part))
        file = b"".join(rest().encryptor("a").all_of(parts))
        assert rest().decrypt("a", file) == content


@given(st.binary(max_size=300))
def test_no_part_of_the_content_can_be_seen(content: bytes) -> None:
    file = rest().encrypt("a", content)
    assert len(file) == HEAD + len(content) + 16
    assert all(content[at : at + 8] not in file[HEAD:] for at in range(max(0, len(content) - 7)))


@given(st.binary(max_size=40), st.data())
def test_a_flipped_bit_anywhere_is_refused(content: bytes, data: st.DataObject) -> None:
    file = bytearray(rest().encrypt("a", content))
    bit = data.draw(st.integers(0, 8 * len(file) - 1))
    file[bit // 8] ^= 1 << bit % 8
    with pytest.raises(DecryptionError):
        rest().decrypt("a", bytes(file))


def test_a_file_that_was_cut_or_went_on_is_refused_wherever() -> None:
    file = rest().encrypt("a", content_of(2 * PIECE + 5))
    assert rest().decrypt("a", file)
    ends = [0, 1, len(MAGIC), HEAD, HEAD + 1, *(HEAD + n * SEALED_PIECE + d
            for n in (1, 2) for d in (-1, 0, 1, 15, 16)), len(file) - 1]  # fmt: skip
    for end in ends:
        with pytest.raises(DecryptionError):
            rest().decrypt("a", file[:end])
    for more in (b"\0", bytes(16), file[HEAD:], file):
        with pytest.raises(DecryptionError):
            rest().decrypt("a", file + more)


def test_pieces_of_one_file_keep_their_order_and_stay_in_it() -> None:
    content = content_of(3 * PIECE)
    one, other = rest().encrypt("a", content), rest().encrypt("a", content)

    def piece(file: bytes, number: int) -> bytes:
        return file[HEAD + number * SEALED_PIECE :][:SEALED_PIECE]

    moved = [
        one[:HEAD] + piece(one, 1) + piece(one, 0) + piece(one, 2),
        one[:HEAD] + piece(one, 0) + piece(one, 2),
        one[:HEAD] + piece(one, 0) + piece(one, 0) + piece(one, 2),
        one[:HEAD] + piece(one, 0) + piece(other, 1) + piece(one, 2),
        one[:HEAD] + other[HEAD:],
    ]
    for file in moved:
        with pytest.raises(DecryptionError):
            rest().decrypt("a", file)


def test_another_key_or_name_opens_nothing() -> None:
    file = rest().encrypt("a", b"rows")
    for key, name in ((bytes(32), "a"), (KEY, "b"), (KEY, "")):
        with pytest.raises(DecryptionError):
            rest(key).decrypt(name, file)


def test_the_same_content_never_looks_the_same_twice() -> None:
    files = {rest().encrypt("a", b"rows" * 9) for _ in range(50)}
    assert len({file[HEAD:] for file in files}) == 50


def test_nothing_is_handed_on_after_what_was_changed() -> None:
    file = bytearray(rest().encrypt("a", content_of(2 * PIECE + 5)))
    file[HEAD + SEALED_PIECE + 9] ^= 1
    pieces = rest().decrypt_pieces("a", BytesIO(bytes(file)).read)
    assert len(next(pieces)) == PIECE
    with pytest.raises(DecryptionError):
        next(pieces)


def test_a_file_of_today_is_opened_for_ever() -> None:
    """Pinned: vaults that were sealed by this are to be read by every later version."""
    fixed = AtRest(KEY, lambda count: bytes(count))
    file = fixed.encrypt("rows.duckdb", content_of(PIECE + 100))
    found = hashlib.sha256(file).hexdigest()
    assert found == "29d399528d001b07602385274061ca37591a85a59a825aeebc477b221f768f8d"


def test_a_key_is_never_printed() -> None:
    assert KEY.hex() not in repr(rest())
    assert "key" not in repr(rest())
