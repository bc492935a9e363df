"""What a round of a secure sum is: fixed and signed before it, checked by every site.

A round's terms are safe for `colluders` sites that work with the server, whichever they are
(docs/federated.md has the argument; each condition of `_faults` is one of its steps).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from itertools import accumulate, combinations, pairwise
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from sfumato.dp.refusal import Refused
from sfumato.dp.secure_aggregation.message_encoding import (
    decode_fields,
    encode_fields,
    exactly,
    malformed,
    refused,
)

NONCE_BYTES: Final = 32
IDENTITY_BYTES: Final = 32
MOST_SITES: Final = 4096
MOST_SIZE: Final = 1 << 28
MOST_ABOUT: Final = 1000  # bytes
LEAST_BITS: Final = 8
MOST_BITS: Final = 64
_INVITATION: Final = "invitation"
_TERMS: Final = "terms"
_NUMBER: Final = 8


@dataclass(frozen=True)
class Member:
    """One site of the cohort: its name and the public half of its identity (Ed25519)."""

    name: str
    identity: bytes


@dataclass(frozen=True)
class Terms:
    """One round: who takes part, how many must be left, and what is added up."""

    nonce: bytes
    members: tuple[Member, ...]  # by name
    floor: int  # so many must be left at every stage, or there is no sum
    colluders: int  # so many sites may tell the server all they know
    neighbours: int  # each site shares masks with so many others
    threshold: int  # so many neighbours' shares give a secret
    size: int  # integers in each update
    bits: int  # the sum is modulo 2**bits
    about: str = ""  # what the sum is for: the model's digest, the number of the round

    def __post_init__(self) -> None:
        for fault in _faults(self):
            raise not_trusted(fault)

    @cached_property
    def digest(self) -> bytes:
        """Return what names the round and everything that was agreed of it."""
        return sha256(self.encoded()).digest()

    def encoded(self) -> bytes:
        """Return the terms as bytes."""
        numbers = (
            self.floor,
            self.colluders,
            self.neighbours,
            self.threshold,
            self.size,
            self.bits,
        )
        return encode_fields(
            _TERMS,
            self.nonce,
            encode_fields("names", *(member.name.encode() for member in self.members)),
            encode_fields("identities", *(member.identity for member in self.members)),
            *(number.to_bytes(_NUMBER, "little") for number in numbers),
            self.about.encode(),
        )

    def place_of(self, name: str) -> int | None:
        """Return the site's place in the cohort, or None."""
        names = [member.name for member in self.members]
        return names.index(name) if name in names else None

    @cached_property
    def ring(self) -> tuple[int, ...]:
        """Return the places in the order in which neighbours are chosen: by a hash."""
        names = [member.name.encode() for member in self.members]
        return tuple(
            sorted(range(len(names)), key=lambda p: sha256(self.digest + names[p]).digest())
        )

    @cached_property
    def near(self) -> tuple[frozenset[int], ...]:
        """Return the neighbours of each place; who asks of one place alone asks `near_of`."""
        return tuple(self.near_of(place) for place in range(len(self.members)))

    def near_of(self, place: int) -> frozenset[int]:
        """Return the neighbours of a place: everyone, or so many to each side of the ring."""
        count = len(self.members)
        if self.neighbours == count - 1:
            return frozenset(range(count)) - {place}
        at = self._on_ring[place]
        reach = range(1, self.neighbours // 2 + 1)
        return frozenset(self.ring[(at + way * step) % count] for step in reach for way in (1, -1))

    @cached_property
    def _on_ring(self) -> dict[int, int]:
        return {place: at for at, place in enumerate(self.ring)}

    def holds_together(self, left: frozenset[int]) -> bool:
        """Say whether no colluders, whoever they are, cut the honest of `left` into two parts.

        On a ring where each is bound to so many on either side, a part is cut off only by two
        runs of that length with nobody honest in them.
        """
        count, reach = len(self.members), self.neighbours // 2
        if self.neighbours == count - 1:
            return len(left) - self.colluders >= 2
        runs = self._left_in_runs(left)
        if sum(sorted(runs)[:2]) > self.colluders:
            return True
        thin = [at for at in range(count) if runs[at] <= self.colluders]
        return all(
            runs[one] + runs[other] > self.colluders
            for one, other in combinations(thin, 2)
            if reach <= other - one <= count - reach  # the two runs share no place
        )

    def _left_in_runs(self, left: frozenset[int]) -> list[int]:
        """Return how many are left of those that stand in a run, from each place of the ring on."""
        count, reach = len(self.members), self.neighbours // 2
        sums = [0, *accumulate(int(place in left) for place in (*self.ring, *self.ring[:reach]))]
        return [sums[at + reach] - sums[at] for at in range(count)]


def terms_for(  # noqa: PLR0913  # a round has so many terms
    members: Sequence[Member],
    *,
    nonce: bytes,
    size: int,
    bits: int,
    floor: int | None = None,
    colluders: int = 0,
    neighbours: int | None = None,
    threshold: int | None = None,
    about: str = "",
) -> Terms:
    """Return the terms of a round, with what was left open chosen from what was said."""
    count = len(members)
    near = count - 1 if neighbours is None else neighbours
    least = least_floor(count, colluders) if floor is None else floor
    return Terms(
        nonce,
        tuple(sorted(members, key=lambda member: member.name)),
        least,
        colluders,
        near,
        shares_needed(count, least, colluders, near) if threshold is None else threshold,
        size,
        bits,
        about,
    )


def least_floor(count: int, colluders: int) -> int:
    """Return the floor of a cohort whose floor nobody has said: two thirds, or what is needed."""
    return max(-(-2 * count // 3), (count + colluders) // 2 + 1)


def shares_needed(count: int, floor: int, colluders: int, neighbours: int) -> int:
    """Return how many neighbours' shares give a secret, if nobody says otherwise.

    As many as a site has left of them, whoever drops out down to the floor; where that is too few
    to keep out the colluders, half of them, and a round may fail above its floor.
    """
    left = neighbours - (count - floor)
    return max(1, left) if left > colluders else max(colluders + 1, neighbours // 2)


def fewest_neighbours(count: int, floor: int, colluders: int) -> int:
    """Return the fewest with which no loss down to the floor fails a round; everyone at worst.

    Of so many places, which are two runs of the ring or the neighbours of one site, all that may
    be gone and all that may collude leave one that is honest.
    """
    fewest = count - floor + colluders + 1
    even = max(2, fewest + fewest % 2)
    return even if _is_ring(even, count) else count - 1


def _faults(terms: Terms) -> Sequence[str]:
    """Return why a round on these terms would not protect a site."""
    count = len(terms.members)
    names = [member.name for member in terms.members]
    checks = (
        (len(terms.nonce) == NONCE_BYTES, "a round's nonce has 32 bytes"),
        (3 <= count <= MOST_SITES, f"a cohort has 3 to {MOST_SITES} sites"),
        (all(a < b for a, b in pairwise(names)), "sites are named once each, in order"),
        (len({member.identity for member in terms.members}) == count, "two sites share a key"),
        (all(len(m.identity) == IDENTITY_BYTES for m in terms.members), "a key has 32 bytes"),
        (
            terms.colluders >= 0 and terms.floor - terms.colluders >= 2,
            "two honest sites must be left",
        ),
        (terms.floor <= count, "the floor is above the cohort"),
        # two lists of survivors cannot both be signed by a floor of sites: honest ones sign once
        (
            2 * terms.floor > count + terms.colluders,
            "two lists of survivors could both be agreed on",
        ),
        (
            terms.neighbours == count - 1 or _is_ring(terms.neighbours, count),
            "no ring has such neighbours",
        ),
        # colluders hold shares of both secrets of a site, whatever the honest reveal
        (terms.colluders < terms.threshold <= terms.neighbours, "colluders could unmask a site"),
        (1 <= terms.size <= MOST_SIZE, "an update has too few or too many numbers"),
        (LEAST_BITS <= terms.bits <= MOST_BITS, "sums are modulo 2**8 to 2**64"),
        (len(terms.about.encode()) <= MOST_ABOUT, "what the round is about is too long"),
    )
    return [fault for holds, fault in checks if not holds]


def _is_ring(neighbours: int, count: int) -> bool:
    return neighbours % 2 == 0 and 2 <= neighbours < count - 1


@dataclass(frozen=True)
class Trust:
    """What a site knows before any round: who may convene, who else there is, its own floor."""

    convener: bytes
    members: Mapping[str, bytes]
    floor: int
    colluders: int = 0
    neighbours: int = 0  # the fewest, in a cohort of all members


def invitation(terms: Terms, convener: Ed25519PrivateKey) -> bytes:
    """Return the terms, signed by who convenes the round."""
    encoded = terms.encoded()
    return encode_fields(_INVITATION, encoded, convener.sign(_INVITATION.encode() + encoded))


def accepted(message: bytes, trust: Trust) -> Terms:
    """Return the terms of an invitation, if the site may take part in such a round."""
    encoded, signature = decode_fields(message, _INVITATION, 2)
    if not is_signed(trust.convener, _INVITATION.encode() + encoded, signature):
        raise not_trusted("the invitation is not signed by the convener")
    terms = decoded(encoded)
    if any(trust.members.get(member.name) != member.identity for member in terms.members):
        raise not_trusted("the cohort holds a site, or a key, that this site does not know")
    fewest = min(trust.neighbours, len(terms.members) - 1)
    has_enough = terms.floor >= trust.floor and terms.neighbours >= fewest
    if not has_enough or terms.colluders < trust.colluders:
        raise not_trusted("the round would be weaker than this site's card allows")
    return terms


def decoded(encoded: bytes) -> Terms:
    """Return the terms that were encoded so, or refuse."""
    nonce, names, identities, *numbers, about = decode_fields(encoded, _TERMS, 10)
    values = [int.from_bytes(exactly(number, _NUMBER, _TERMS), "little") for number in numbers]
    pairs = zip(
        _texts(decode_fields(names, "names")), decode_fields(identities, "identities"), strict=False
    )
    members = tuple(Member(name, identity) for name, identity in pairs)
    floor, colluders, neighbours, threshold, size, bits = values
    (text,) = _texts([about])
    terms = Terms(nonce, members, floor, colluders, neighbours, threshold, size, bits, text)
    if terms.encoded() != encoded:
        raise malformed(_TERMS)
    return terms


def _texts(fields: Sequence[bytes]) -> list[str]:
    try:
        return [field.decode() for field in fields]
    except UnicodeDecodeError as wrong:
        raise malformed(_TERMS) from wrong


def is_signed(identity: bytes, message: bytes, signature: bytes) -> bool:
    """Say whether the key has signed the message."""
    try:
        Ed25519PublicKey.from_public_bytes(identity).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


def signed(
    kind: str, identity: Ed25519PrivateKey, place: int, digest: bytes, *said: bytes
) -> bytes:
    """Return a message of a site in this round, signed by it."""
    body = encode_fields(kind, digest, place.to_bytes(_NUMBER, "little"), *said)
    return encode_fields("signed", body, identity.sign(body))


def opened(message: bytes, kind: str, terms: Terms, count: int) -> tuple[int, list[bytes]]:
    """Return who said it, and what: `count` fields; refused if another round's, or not signed."""
    body, signature = decode_fields(message, "signed", 2)
    digest, at, *said = decode_fields(body, kind, count + 2)
    place = int.from_bytes(exactly(at, _NUMBER, kind), "little")
    if digest != terms.digest:
        raise refused("The message belongs to another round.")
    if place >= len(terms.members) or not is_signed(terms.members[place].identity, body, signature):
        raise refused("The message is not signed by the site that it names.")
    return place, said


def not_trusted(fault: str) -> Refused:
    """Return the refusal of a round in which a site would not be safe."""
    return Refused(
        "sum-not-trusted",
        f"The round's terms are not accepted: {fault}.",
        "Nothing was sent. Have the round convened on terms that the sites' cards allow.",
    )
