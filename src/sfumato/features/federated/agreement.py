"""The agreement of a federation: its sites, the convener, the floor and the number of colluders.

The owner of each site stores the same agreement. A site refuses a round with other terms.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Final, Protocol

from sfumato.dp.json_values import Json
from sfumato.dp.refusal import Refused
from sfumato.dp.secure_aggregation.round_terms import (
    NONCE_BYTES,
    Member,
    Terms,
    Trust,
    fewest_neighbours,
    least_floor,
    not_trusted,
    terms_for,
)
from sfumato.query.expression import canonical_json

NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,62}")
# the most sites if every site shares masks and secrets with every other site
MAX_SITES: Final = 200
# the most sites if each shares them with its neighbours only, and knows the keys of all
MAX_IN_RING: Final = 1000
ONE_IN: Final = 20  # default: one site in twenty may collude
KEY_DIGITS: Final = 64
WORDS: Final = ("name", "convener", "sites", "floor", "colluders", "neighbours")
SHOWN: Final = ("digest", "this_site")  # extra keys when a site shows an agreement
JOINED, LEFT = "federation-joined", "federation-left"  # kinds of entry in a site's ledger


@dataclass(frozen=True)
class Agreement:
    """The agreement of a federation: its sites, its convener, and its limits for secure sums.

    The limits are the floor (fewest sites in a sum) and the colluders (how many may work together).
    """

    name: str
    convener: bytes
    members: tuple[Member, ...]  # sorted by name
    floor: int
    colluders: int
    neighbours: int | None = None  # mask partners per site; None means all others

    def __post_init__(self) -> None:
        names = [self.name, *(member.name for member in self.members)]
        if not all(NAME.fullmatch(name) for name in names):
            raise bad_federation("a name must be letters, digits, - and _, and begin with a letter")
        if len(self.members) > (MAX_IN_RING if self.is_ring else MAX_SITES):
            raise bad_federation(
                f"a federation may have {MAX_SITES} sites at most, or {MAX_IN_RING} with neighbours"
            )
        if self.colluders < 1:
            # sites see the answers too, and each knows its own noise share
            raise bad_federation(
                "noise must protect against at least one site, so colluders must be 1 or more"
            )
        self.terms(bytes(NONCE_BYTES), 1, 8)

    @property
    def is_ring(self) -> bool:
        """Return True if each site shares masks with its neighbours only, not with all others."""
        return self.neighbours not in (None, len(self.members) - 1)

    @cached_property
    def digest(self) -> str:
        """Return the SHA-256 of the agreement (hex)."""
        return sha256(canonical_json(self.as_json()).encode()).hexdigest()

    def as_json(self) -> Json:
        """Return the agreement as JSON, for storage and exchange.

        Without `neighbours` the JSON has no such field. So the digests of agreements from before
        that field existed stay valid.
        """
        more: Json = {} if self.neighbours is None else {"neighbours": self.neighbours}
        return {
            "name": self.name,
            "convener": self.convener.hex(),
            "sites": {member.name: member.identity.hex() for member in self.members},
            "floor": self.floor,
            "colluders": self.colluders,
            **more,
        }

    def terms(self, nonce: bytes, size: int, bits: int, about: str = "") -> Terms:
        """Return the terms of a secure-sum round of all sites: `size` integers modulo 2**bits."""
        return terms_for(
            self.members,
            nonce=nonce,
            size=size,
            bits=bits,
            floor=self.floor,
            colluders=self.colluders,
            neighbours=self.neighbours,
            about=about,
        )

    def trust(self) -> Trust:
        """Return what this site requires of a round: convener, keys, floor, colluders and more."""
        known = {member.name: member.identity for member in self.members}
        everyone = len(known) - 1
        fewest = everyone if self.neighbours is None else self.neighbours
        return Trust(self.convener, known, self.floor, self.colluders, fewest)

    def check(self, terms: Terms) -> None:
        """Refuse a round whose members or terms differ from what the site's owner has agreed to."""
        if terms != self.terms(terms.nonce, terms.size, terms.bits, terms.about):
            raise not_trusted("they differ from the agreement")

    def name_of(self, identity: bytes) -> str | None:
        """Return the name of the site with this public key, or None."""
        found = [member.name for member in self.members if member.identity == identity]
        return found[0] if found else None


def read_agreement(shape: Mapping[str, object]) -> Agreement:
    """Parse an agreement from JSON; refuse an invalid one."""
    unknown = sorted(shape.keys() - {*WORDS, *SHOWN})
    if unknown:
        raise bad_federation(
            f"it has an unknown field {unknown[0]!r}; its fields are {', '.join(WORDS)}"
        )
    match {"neighbours": None, **shape}:
        case {"name": str(name), "convener": str(convener), "sites": dict(sites),
              "floor": int(floor), "colluders": int(colluders),
              "neighbours": int() | None as near} if not (
                  isinstance(floor, bool) or isinstance(colluders, bool)):  # fmt: skip
            members = tuple(Member(str(site), key_of(sites[site])) for site in sorted(sites))
            return Agreement(name, key_of(convener), members, floor, colluders, near)
    raise bad_federation(
        "it must have a name, a convener, sites with their keys, a floor and colluders; it may "
        "have a number of neighbours"
    )


def agreed(  # noqa: PLR0913  # what sites agree on
    name: str,
    *,
    convener: bytes,
    sites: Mapping[str, bytes],
    floor: int | None = None,
    colluders: int | None = None,
    neighbours: int | None = None,
) -> Agreement:
    """Create an agreement between sites; choose missing values from the number of sites.

    Up to 200 sites (MAX_SITES), each site shares masks with every other. With more sites, each has
    the fewest neighbours with which a sum succeeds for any loss of sites down to the floor.
    """
    members = tuple(Member(site, sites[site]) for site in sorted(sites))
    may_tell = max(1, len(members) // ONE_IN) if colluders is None else colluders
    left = least_floor(len(members), may_tell) if floor is None else floor
    if neighbours is None and len(members) > MAX_SITES:
        neighbours = fewest_neighbours(len(members), left, may_tell)
    return Agreement(name, convener, members, left, may_tell, neighbours)


def agreement_of(text: str) -> Agreement:
    """Parse the agreement from a ledger entry that this vault wrote."""
    return read_agreement(json.loads(text)["agreement"])


def key_of(text: object) -> bytes:
    """Parse a 32-byte public key from hex; refuse any other text."""
    is_key = isinstance(text, str) and len(text) == KEY_DIGITS
    if not is_key or set(str(text)) - set("0123456789abcdef"):
        raise bad_federation(
            f"a key must have {KEY_DIGITS} hexadecimal digits, as `sfumato federate key` prints"
        )
    return bytes.fromhex(str(text))


def bad_federation(why: str) -> Refused:
    """Return the refusal for an invalid agreement."""
    return Refused(
        "bad-federation",
        f"The federation's agreement cannot be joined: {why}.",
        "Ask the federation's convener (who set it up) for the original agreement.",
    )


class NonceStore(Protocol):
    """A store of the nonces of all rounds that a site has joined, so that it joins none twice.

    A change is durable when the call returns.
    """

    def take(self, nonce: bytes) -> bool:
        """Store a round's nonce; return False if this site has joined a round with it before."""
        ...
