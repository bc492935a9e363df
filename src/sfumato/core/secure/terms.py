"""What a round of a secure sum is: fixed and signed before it, checked by every site.

A round's terms are safe for `colluders` sites that work with the server, whichever they are
(docs/federated.md has the argument; each condition of `_faults` is one of its steps).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from itertools import pairwise
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from sfumato.core.refusal import Refused
from sfumato.core.secure.frames import exactly, malformed, pack, refused, unpack

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
        return pack(
            _TERMS,
            self.nonce,
            pack("names", *(member.name.encode() for member in self.members)),
            pack("identities", *(member.identity for member in self.members)),
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
        """Return the neighbours of each place: everyone, or so many to each side of the ring."""
        count = len(self.members)
        if self.neighbours == count - 1:
            everyone = frozenset(range(count))
            return tuple(everyone - {place} for place in range(count))
        reach = [step for half in range(1, self.neighbours // 2 + 1) for step in (half, -half)]
        found: list[frozenset[int]] = [frozenset()] * count
        for at, place in enumerate(self.ring):
            found[place] = frozenset(self.ring[(at + step) % count] for step in reach)
        return tuple(found)

    def holds_together(self, left: frozenset[int]) -> bool:
        """Say whether no colluders, whoever they are, cut the honest of `left` into two parts.

        On a ring where each is bound to so many on either side, a part is cut off only by two
        runs of that length with nobody honest in them.
        """
        count, reach = len(self.members), self.neighbours // 2
        if self.neighbours == count - 1:
            return len(left) - self.colluders >= 2
        runs = [
            sum(self.ring[(at + step) % count] in left for step in range(reach))
            for at in range(count)
        ]
        if sum(sorted(runs)[:2]) > self.colluders:
            return True
        apart = range(reach, count - reach + 1)
        return all(
            runs[a] + runs[(a + b) % count] > self.colluders for a in range(count) for b in apart
        )


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
    least = max(-(-2 * count // 3), (count + colluders) // 2 + 1)
    near = count - 1 if neighbours is None else neighbours
    least = least if floor is None else floor
    enough = least - 1 if near == count - 1 else max(colluders + 1, near // 2)
    return Terms(
        nonce,
        tuple(sorted(members, key=lambda member: member.name)),
        least,
        colluders,
        near,
        max(1, enough) if threshold is None else threshold,
        size,
        bits,
        about,
    )


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


def invitation(terms: Terms, convener: Ed25519PrivateKey) -> bytes:
    """Return the terms, signed by who convenes the round."""
    encoded = terms.encoded()
    return pack(_INVITATION, encoded, convener.sign(_INVITATION.encode() + encoded))


def accepted(message: bytes, trust: Trust) -> Terms:
    """Return the terms of an invitation, if the site may take part in such a round."""
    encoded, signature = unpack(message, _INVITATION, 2)
    if not is_signed(trust.convener, _INVITATION.encode() + encoded, signature):
        raise not_trusted("the invitation is not signed by the convener")
    terms = decoded(encoded)
    if any(trust.members.get(member.name) != member.identity for member in terms.members):
        raise not_trusted("the cohort holds a site, or a key, that this site does not know")
    if terms.floor < trust.floor or terms.colluders < trust.colluders:
        raise not_trusted("the round would be weaker than this site's card allows")
    return terms


def decoded(encoded: bytes) -> Terms:
    """Return the terms that were encoded so, or refuse."""
    nonce, names, identities, *numbers, about = unpack(encoded, _TERMS, 10)
    values = [int.from_bytes(exactly(number, _NUMBER, _TERMS), "little") for number in numbers]
    pairs = zip(_texts(unpack(names, "names")), unpack(identities, "identities"), strict=False)
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
    body = pack(kind, digest, place.to_bytes(_NUMBER, "little"), *said)
    return pack("signed", body, identity.sign(body))


def opened(message: bytes, kind: str, terms: Terms, count: int) -> tuple[int, list[bytes]]:
    """Return who said it, and what: `count` fields; refused if another round's, or not signed."""
    body, signature = unpack(message, "signed", 2)
    digest, at, *said = unpack(body, kind, count + 2)
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
