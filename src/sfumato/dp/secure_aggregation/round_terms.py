"""The terms of a secure aggregation round: fixed and signed in advance, checked by every site.

The terms protect the sites against any `colluders` sites that work with the server.
docs/how-to/federated.md has the argument; each condition of `_faults` is one of its steps.
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
MAX_SITES: Final = 4096
MAX_SIZE: Final = 1 << 28
MAX_ABOUT: Final = 1000  # bytes of the description `about`
MIN_BITS: Final = 8
MAX_BITS: Final = 64
_INVITATION: Final = "invitation"
_TERMS: Final = "terms"
_NUMBER: Final = 8


@dataclass(frozen=True)
class Member:
    """One site of a round's cohort: its name and its public identity key (Ed25519)."""

    name: str
    identity: bytes


@dataclass(frozen=True)
class Terms:
    """The terms of one secure aggregation round: its sites, their minimum, and the sum's size."""

    nonce: bytes
    members: tuple[Member, ...]  # sorted by name
    floor: int  # fewest remaining sites at every stage; with fewer there is no sum
    colluders: int  # number of sites that may collude with the server
    neighbours: int  # number of other sites with which each site shares masks
    threshold: int  # how many of a site's shares recover its secret
    size: int  # integers in each update
    bits: int  # the sum is modulo 2**bits
    about: str = ""  # purpose of the sum: the model's digest, the number of the round

    def __post_init__(self) -> None:
        for fault in _faults(self):
            raise not_trusted(fault)

    @cached_property
    def digest(self) -> bytes:
        """Return the hash of all terms, which identifies the round."""
        return sha256(self.encoded()).digest()

    def encoded(self) -> bytes:
        """Encode the terms as bytes, in their one canonical encoding."""
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
        """Return the index of a site in the cohort by its name, or None if it is no member."""
        names = [member.name for member in self.members]
        return names.index(name) if name in names else None

    @cached_property
    def ring(self) -> tuple[int, ...]:
        """Return the sites' indices in ring order: sites that are close on the ring share masks.

        A hash of the terms and the names determines the order.
        """
        names = [member.name.encode() for member in self.members]
        return tuple(
            sorted(range(len(names)), key=lambda p: sha256(self.digest + names[p]).digest())
        )

    @cached_property
    def near(self) -> tuple[frozenset[int], ...]:
        """Return for every site the set of neighbours with which it shares masks.

        `near_of` is faster for a single site.
        """
        return tuple(self.near_of(place) for place in range(len(self.members)))

    def near_of(self, place: int) -> frozenset[int]:
        """Return the neighbours of one site: the sites with which it shares masks.

        They are all other sites, or the nearest sites on each side of the ring.
        """
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
        """Return whether no colluders can split the honest sites of `left` into two separate sums.

        Each site shares masks with `neighbours` / 2 sites on each side of the ring. So a split
        needs two runs of that length without an honest site.
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
            if reach <= other - one <= count - reach  # the runs do not overlap
        )

    def _left_in_runs(self, left: frozenset[int]) -> list[int]:
        """Return, for each position on the ring, how many of the next sites are left in the round.

        A run starts at each ring position and has `neighbours` / 2 sites. Runs without enough
        honest sites would let colluders split the sum.
        """
        count, reach = len(self.members), self.neighbours // 2
        sums = [0, *accumulate(int(place in left) for place in (*self.ring, *self.ring[:reach]))]
        return [sums[at + reach] - sums[at] for at in range(count)]


def terms_for(  # noqa: PLR0913  # a round has that many terms
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
    """Build the terms of a round; parameters that are None get safe defaults."""
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
    """Return the default minimum of sites that must remain in a round.

    It is two thirds of the sites, or the safe minimum against colluders if that is higher.
    """
    return max(-(-2 * count // 3), (count + colluders) // 2 + 1)


def shares_needed(count: int, floor: int, colluders: int, neighbours: int) -> int:
    """Return the default threshold: how many secret shares of neighbours recover a secret.

    It is the number of neighbours that surely remain if the round drops to `floor` sites. If the
    colluders could reach that number, the threshold is half of the neighbours, or colluders + 1 if
    that is more. A round may then fail although more sites than `floor` remain.
    """
    left = neighbours - (count - floor)
    return max(1, left) if left > colluders else max(colluders + 1, neighbours // 2)


def fewest_neighbours(count: int, floor: int, colluders: int) -> int:
    """Return the fewest neighbours with which every round that keeps its floor can finish.

    The floor is the minimum of remaining sites. The result is the size of two runs of the ring, or
    of the neighbours of one site. After all possible dropouts and colluders, at least one honest
    site is left among them. The result is all other sites if no ring is large enough.
    """
    fewest = count - floor + colluders + 1
    even = max(2, fewest + fewest % 2)
    return even if _is_ring(even, count) else count - 1


def _faults(terms: Terms) -> Sequence[str]:
    """Return the reasons, as phrases, why these terms would not protect a site.

    The result is empty if the terms are safe.
    """
    count = len(terms.members)
    names = [member.name for member in terms.members]
    checks = (
        (len(terms.nonce) == NONCE_BYTES, "the nonce of the round must have 32 bytes"),
        (3 <= count <= MAX_SITES, f"the cohort must have 3 to {MAX_SITES} sites"),
        (all(a < b for a, b in pairwise(names)), "the sites must be named once each, in order"),
        (len({member.identity for member in terms.members}) == count, "two sites share a key"),
        (
            all(len(m.identity) == IDENTITY_BYTES for m in terms.members),
            "every key must have 32 bytes",
        ),
        (
            terms.colluders >= 0 and terms.floor - terms.colluders >= 2,
            "at least two honest sites must be left",
        ),
        (terms.floor <= count, "the floor is larger than the cohort"),
        # honest sites sign once, so two lists cannot both have `floor` signatures
        (
            2 * terms.floor > count + terms.colluders,
            "the sites could agree on two different lists of survivors",
        ),
        (
            terms.neighbours == count - 1 or _is_ring(terms.neighbours, count),
            "no ring of sites has this number of neighbours",
        ),
        # colluders hold shares of both secrets of a site, whatever honest sites reveal
        (terms.colluders < terms.threshold <= terms.neighbours, "colluders could unmask a site"),
        (1 <= terms.size <= MAX_SIZE, "an update has too few or too many numbers"),
        (MIN_BITS <= terms.bits <= MAX_BITS, "sums must be modulo 2**8 to 2**64"),
        (len(terms.about.encode()) <= MAX_ABOUT, "the description of the round is too long"),
    )
    return [fault for holds, fault in checks if not holds]


def _is_ring(neighbours: int, count: int) -> bool:
    return neighbours % 2 == 0 and 2 <= neighbours < count - 1


@dataclass(frozen=True)
class Trust:
    """What one site requires of any round: the convener's key, known sites and minimum terms.

    The convener is who starts the round and signs its terms.
    """

    convener: bytes
    members: Mapping[str, bytes]
    floor: int
    colluders: int = 0
    neighbours: int = 0  # the minimum; a smaller cohort needs at most all others


def invitation(terms: Terms, convener: Ed25519PrivateKey) -> bytes:
    """Sign the terms of a round with the convener's key; return the invitation message."""
    encoded = terms.encoded()
    return encode_fields(_INVITATION, encoded, convener.sign(_INVITATION.encode() + encoded))


def accepted(message: bytes, trust: Trust) -> Terms:
    """Check a round's invitation against what this site requires; return the round's terms.

    An invitation that does not meet the requirements is refused.
    """
    encoded, signature = decode_fields(message, _INVITATION, 2)
    if not is_signed(trust.convener, _INVITATION.encode() + encoded, signature):
        raise not_trusted("the invitation is not signed by the convener")
    terms = decoded(encoded)
    if any(trust.members.get(member.name) != member.identity for member in terms.members):
        raise not_trusted("the cohort has a site or a key that this site does not know")
    fewest = min(trust.neighbours, len(terms.members) - 1)
    has_enough = terms.floor >= trust.floor and terms.neighbours >= fewest
    if not has_enough or terms.colluders < trust.colluders:
        raise not_trusted("the round would protect less than this site's data card demands")
    return terms


def decoded(encoded: bytes) -> Terms:
    """Decode the terms of a round; refuse bytes that are not their canonical encoding."""
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
    """Return whether the signature of a message is valid for this public key."""
    try:
        Ed25519PublicKey.from_public_bytes(identity).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


def signed(
    kind: str, identity: Ed25519PrivateKey, place: int, digest: bytes, *said: bytes
) -> bytes:
    """Build one site's message of this kind for a round, signed with the site's identity key.

    `place` is the site's index in the cohort, and `digest` identifies the round.
    """
    body = encode_fields(kind, digest, place.to_bytes(_NUMBER, "little"), *said)
    return encode_fields("signed", body, identity.sign(body))


def opened(message: bytes, kind: str, terms: Terms, count: int) -> tuple[int, list[bytes]]:
    """Verify a site's signed message; return the site's index (place) and the `count` fields.

    A message of another round, or one without a valid signature, is refused.
    """
    body, signature = decode_fields(message, "signed", 2)
    digest, at, *said = decode_fields(body, kind, count + 2)
    place = int.from_bytes(exactly(at, _NUMBER, kind), "little")
    if digest != terms.digest:
        raise refused("The message belongs to another round.")
    if place >= len(terms.members) or not is_signed(terms.members[place].identity, body, signature):
        raise refused("The message is not signed by the site that it names.")
    return place, said


def not_trusted(fault: str) -> Refused:
    """Build the refusal of a round whose terms would not protect a site."""
    return Refused(
        "sum-not-trusted",
        f"The round's terms are not accepted: {fault}.",
        "Nothing was sent. Have the round convened on terms that the sites' cards allow.",
    )
