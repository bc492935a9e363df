"""Blind signatures: the RFC's own numbers, and what a server sees of a token."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any, Final

import pytest
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.hashes import SHA384

from sfumato.dp.refusal import Refused
from sfumato.features.surveys.blind_signatures import (
    ROOTS,
    PrivateKey,
    PublicKey,
    _nobodys,
    blind,
    blind_with,
    encode,
    is_proven,
    prove,
    sign,
    unblind,
)
from sfumato.system.randomness import SystemRandomSource

# RFC 9474, appendix A.3; the salt is the one that its signature holds.
RFC: Final[dict[str, Any]] = json.loads(Path(__file__).with_name("blind_vectors.json").read_text())
N = int(RFC["n"], 16)
PUBLIC: Final = PublicKey(N, 65537)
PRIVATE: Final = PrivateKey(PUBLIC, int(RFC["p"], 16), int(RFC["q"], 16), int(RFC["d"], 16))
DICE: Final = SystemRandomSource()


def _bytes(name: str) -> bytes:
    return bytes.fromhex(RFC[name])


def test_the_rfcs_token_is_blinded_as_the_rfc_says() -> None:
    factor = pow(int(RFC["inv"], 16), -1, N)
    made = blind_with(PUBLIC, _bytes("msg"), _bytes("salt"), factor)
    assert made.message == _bytes("blinded_msg")
    assert made.inverse == int(RFC["inv"], 16)


def test_the_rfcs_blinded_token_gets_the_rfcs_signature() -> None:
    assert sign(PRIVATE, _bytes("blinded_msg"), DICE) == _bytes("blind_sig")


def test_the_rfcs_signature_is_unblinded_to_the_rfcs() -> None:
    assert unblind(PUBLIC, _bytes("blind_sig"), int(RFC["inv"], 16)) == _bytes("sig")


def test_a_library_accepts_what_was_signed_blindly() -> None:
    token = DICE.draw(32)
    hidden = blind(PUBLIC, token, DICE)
    signature = unblind(PUBLIC, sign(PRIVATE, hidden.message, DICE), hidden.inverse)
    key = rsa.RSAPublicNumbers(65537, N).public_key()
    key.verify(signature, token, padding.PSS(padding.MGF1(SHA384()), 48), SHA384())


def test_every_token_could_lie_behind_what_the_server_was_sent() -> None:
    """For any token there is a factor that gives the same number: the server cannot tell."""
    hidden = blind(PUBLIC, DICE.draw(32), DICE)
    other = int.from_bytes(encode(DICE.draw(32), N.bit_length() - 1, DICE.draw(48)), "big")
    power = int.from_bytes(hidden.message, "big") * pow(other, -1, N) % N
    factor = pow(power, PRIVATE.d, N)
    assert other * pow(factor, 65537, N) % N == int.from_bytes(hidden.message, "big")


def test_a_finished_signature_does_not_open_what_was_signed() -> None:
    """Whoever has both, and the key, cannot tell that they belong together."""
    token = DICE.draw(32)
    hidden = blind(PUBLIC, token, DICE)
    signed = sign(PRIVATE, hidden.message, DICE)
    opened = pow(int.from_bytes(unblind(PUBLIC, signed, hidden.inverse), "big"), 65537, N)
    assert opened != int.from_bytes(hidden.message, "big")
    assert hidden.inverse != 1


def test_blinding_one_token_twice_gives_two_numbers_that_share_no_bits() -> None:
    token = DICE.draw(32)
    first, second = (int.from_bytes(blind(PUBLIC, token, DICE).message, "big") for _ in range(2))
    assert 1800 < (first ^ second).bit_count() < 2300


def test_leading_bits_of_a_blinded_token_are_uneven_no_more_than_chance() -> None:
    seen = Counter(blind(PUBLIC, bytes(32), DICE).message[1] for _ in range(512))
    assert max(seen.values()) < 16


@pytest.mark.parametrize("number", [0, 1, N, N + 1, 2**4096 - 1])
def test_what_is_no_blinded_token_is_not_signed(number: int) -> None:
    with pytest.raises(Refused):
        sign(PRIVATE, number.to_bytes(512, "big"), DICE)


def test_a_token_of_another_length_is_not_signed() -> None:
    with pytest.raises(Refused):
        sign(PRIVATE, b"\x02" * 511, DICE)


# A key that marks: its exponent divides p - 1, so only one number in 65537 has a root.
MARKING: Final[dict[str, str]] = json.loads(
    Path(__file__).with_name("marking_key.json").read_text()
)
P, Q = int(MARKING["p"], 16), int(MARKING["q"], 16)
BAD: Final = PublicKey(P * Q, 65537)


def mark(number: int) -> int:
    """Return what no blinding under such a key hides of a number: which of 65537 classes it is."""
    return pow(number, (P - 1) // 65537, P)


def test_such_a_key_knows_a_token_again_behind_its_blinding() -> None:
    """The attack is there; what follows keeps it out."""
    for _ in range(3):
        token, salt = DICE.draw(32), DICE.draw(48)
        factor = int.from_bytes(DICE.draw(272), "big") % BAD.modulus
        sent = int.from_bytes(blind_with(BAD, token, salt, factor).message, "big")
        encoded = int.from_bytes(encode(token, BAD.modulus.bit_length() - 1, salt), "big")
        assert mark(sent) == mark(encoded)
        assert mark(encoded) != 1


def test_a_key_that_marks_nobody_is_proven_and_one_that_marks_cannot_be() -> None:
    roots = prove(PRIVATE, DICE)
    assert is_proven(PUBLIC, roots)
    assert [mark(number) for number in _nobodys(BAD)].count(1) == 0  # none of them has a root
    d = pow(65537, -1, (P - 1) // 65537 * (Q - 1))  # of those that have one, this is it
    tried = [pow(number, d, BAD.modulus).to_bytes(256, "big") for number in _nobodys(BAD)]
    assert not is_proven(BAD, tried)
    assert not is_proven(BAD, roots)
    assert not is_proven(PublicKey(P * P, 65537), tried)


def test_a_proof_is_of_its_key_whole_and_in_order() -> None:
    roots = list(prove(PRIVATE, DICE))
    assert len(roots) == ROOTS == 8
    assert prove(PRIVATE, DICE) == tuple(roots)  # whatever the mask
    other = int.from_bytes(roots[3], "big") ^ 1
    wrong: list[tuple[PublicKey, list[bytes]]] = [
        (PUBLIC, []), (PUBLIC, roots[:7]), (PUBLIC, [*roots, roots[0]]), (PUBLIC, roots[::-1]),
        (PUBLIC, [*roots[:3], other.to_bytes(512, "big"), *roots[4:]]),
        (PUBLIC, [bytes(512)] * 8), (PublicKey(N, 3), roots), (PublicKey(N, 1), roots),
        (PublicKey(N, 65537 * 3), roots), (PublicKey(N + 2, 65537), roots),
        (PublicKey(2 * N, 65537), roots), (PublicKey(N >> 2100 | 1, 65537), roots),
    ]  # fmt: skip
    for key, given in wrong:
        assert not is_proven(key, given)


def test_the_exponent_one_would_prove_itself_and_is_refused() -> None:
    numbers = [n.to_bytes(256, "big") for n in _nobodys(PublicKey(P * Q, 1))]
    assert not is_proven(PublicKey(P * Q, 1), numbers)


def test_the_numbers_follow_from_the_key_alone() -> None:
    assert _nobodys(PUBLIC) == _nobodys(PublicKey(N, 65537))
    assert len({*_nobodys(PUBLIC), *_nobodys(BAD)}) == 16
    assert all(number.bit_length() > 1900 for number in _nobodys(BAD))


def test_a_token_that_shares_a_factor_with_the_key_is_not_blinded() -> None:
    salt, token = bytes(48), bytes(32)
    encoded = int.from_bytes(encode(token, 2047, salt), "big")
    small = next(p for p in range(3, 10**6, 2) if encoded % p == 0)
    key = PublicKey(small * (1 << 2047 - small.bit_length() + 1 | 1), 65537)
    while key.modulus.bit_length() != 2048:
        key = PublicKey(key.modulus + 2 * small, 65537)
    with pytest.raises(Refused):
        blind_with(key, token, salt, 12345678912345)
