"""An agreement between sites: who they are, who may convene a sum, how many must be left.

Every site's owner puts the same agreement down; a round on other terms is refused by each of them.
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
from sfumato.query.expression import spelled

NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,62}")
MOST_SITES: Final = 200  # where every site shares masks and secrets with every other
MOST_IN_RING: Final = 1000  # where it does with its neighbours, and hears of all others
ONE_IN: Final = 20  # sites may collude, where nobody says how many
KEY_DIGITS: Final = 64
WORDS: Final = ("name", "convener", "sites", "floor", "colluders", "neighbours")
SHOWN: Final = ("digest", "this_site")  # what a site says beside an agreement that it shows
JOINED, LEFT = "federation-joined", "federation-left"  # kinds of entry in a site's ledger


@dataclass(frozen=True)
class Agreement:
    """What sites have agreed on before any sum."""

    name: str
    convener: bytes
    members: tuple[Member, ...]  # by name
    floor: int
    colluders: int
    neighbours: int | None = None  # so many share masks with each site; every other, if left out

    def __post_init__(self) -> None:
        names = [self.name, *(member.name for member in self.members)]
        if not all(NAME.fullmatch(name) for name in names):
            raise bad_federation("a name is letters, digits, - and _, and begins with a letter")
        if len(self.members) > (MOST_IN_RING if self.is_ring else MOST_SITES):
            raise bad_federation(
                f"a federation has at most {MOST_SITES} sites, or {MOST_IN_RING} with neighbours"
            )
        if self.colluders < 1:
            # sites see the answers too, and each knows its own share of the noise
            raise bad_federation("noise must suffice against one site at least, so colluders is 1")
        self.terms(bytes(NONCE_BYTES), 1, 8)

    @property
    def is_ring(self) -> bool:
        """Say whether sites share masks with some of the others only."""
        return self.neighbours not in (None, len(self.members) - 1)

    @cached_property
    def digest(self) -> str:
        """Return what stands for the agreement (hex)."""
        return sha256(spelled(self.as_json()).encode()).hexdigest()

    def as_json(self) -> Json:
        """Return the agreement as it is kept and handed round.

        One without neighbours is spelled as it was before there were any.
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
        """Return the terms of a round of so many integers modulo 2**bits; all sites are asked."""
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
        """Return what a site that has agreed accepts of a round."""
        known = {member.name: member.identity for member in self.members}
        everyone = len(known) - 1
        fewest = everyone if self.neighbours is None else self.neighbours
        return Trust(self.convener, known, self.floor, self.colluders, fewest)

    def check(self, terms: Terms) -> None:
        """Refuse a round that is not of all these sites, on these very terms."""
        if terms != self.terms(terms.nonce, terms.size, terms.bits, terms.about):
            raise not_trusted("they are not those of the agreement")

    def name_of(self, identity: bytes) -> str | None:
        """Return the name of the site that has this key, or None."""
        found = [member.name for member in self.members if member.identity == identity]
        return found[0] if found else None


def read_agreement(shape: Mapping[str, object]) -> Agreement:
    """Return the agreement that the JSON plainly spells, or refuse."""
    unknown = sorted(shape.keys() - {*WORDS, *SHOWN})
    if unknown:
        raise bad_federation(f"it has no word {unknown[0]!r}; its words are {', '.join(WORDS)}")
    match {"neighbours": None, **shape}:
        case {"name": str(name), "convener": str(convener), "sites": dict(sites),
              "floor": int(floor), "colluders": int(colluders),
              "neighbours": int() | None as near} if not (
                  isinstance(floor, bool) or isinstance(colluders, bool)):  # fmt: skip
            members = tuple(Member(str(site), key_of(sites[site])) for site in sorted(sites))
            return Agreement(name, key_of(convener), members, floor, colluders, near)
    raise bad_federation(
        "it has a name, a convener, sites with their keys, a floor and colluders, and at will a "
        "number of neighbours"
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
    """Return an agreement, with what was left open chosen by how many sites there are.

    Everybody is everybody's neighbour as long as there may be so many sites; beyond it each has the
    fewest with which no loss down to the floor fails a sum.
    """
    members = tuple(Member(site, sites[site]) for site in sorted(sites))
    may_tell = max(1, len(members) // ONE_IN) if colluders is None else colluders
    left = least_floor(len(members), may_tell) if floor is None else floor
    if neighbours is None and len(members) > MOST_SITES:
        neighbours = fewest_neighbours(len(members), left, may_tell)
    return Agreement(name, convener, members, left, may_tell, neighbours)


def agreement_of(text: str) -> Agreement:
    """Return the agreement of an entry that this house wrote."""
    return read_agreement(json.loads(text)["agreement"])


def key_of(text: object) -> bytes:
    """Return the 32 bytes of a key in hex, or refuse."""
    is_key = isinstance(text, str) and len(text) == KEY_DIGITS
    if not is_key or set(str(text)) - set("0123456789abcdef"):
        raise bad_federation(f"a key is {KEY_DIGITS} digits in hex, as `sfumato federate key` says")
    return bytes.fromhex(str(text))


def bad_federation(why: str) -> Refused:
    """Return the refusal of an agreement that is none."""
    return Refused(
        "bad-federation",
        f"The federation's agreement is not one to join: {why}.",
        "Ask whoever convenes it for the agreement as it was handed round.",
    )


class NonceStore(Protocol):
    """The nonces of all rounds that a site was ever in; a change is durable when it returns."""

    def take(self, nonce: bytes) -> bool:
        """Put the nonce down; say whether it was new."""
        ...
