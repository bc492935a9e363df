"""Rounds of secure sums between real participants and a real collector, some of whom fall out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from hashlib import sha256
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray

from sfumato.dp.secure_aggregation.collector import Collector
from sfumato.dp.secure_aggregation.message_encoding import decode_fields
from sfumato.dp.secure_aggregation.participant import Participant
from sfumato.dp.secure_aggregation.round_terms import Member, Terms, Trust, terms_for
from support.seeded_dice import SeededDice

Integers = NDArray[np.int64]
STAGES = ("join", "share", "mask", "agree", "reveal")
Spoil = Callable[[str, str, bytes], bytes]  # site, stage, message -> what is sent


def key_of(name: str) -> Ed25519PrivateKey:
    """The identity of a site, or of the convener, for tests."""
    return Ed25519PrivateKey.from_private_bytes(sha256(name.encode()).digest())


def public(name: str) -> bytes:
    return key_of(name).public_key().public_bytes_raw()


CONVENER = key_of("the convener")


def shares_in(revealed: bytes) -> dict[int, bytes]:
    """What a site has revealed, by whose it is."""
    items = decode_fields(
        decode_fields(decode_fields(revealed, "signed", 2)[0], "revealed", 3)[2], "unsealed"
    )
    return {int.from_bytes(item[:8], "little"): item[8:] for item in items}


class Round:
    """Sites `s00`, `s01`, ... and a collector, in one process; what they send is kept."""

    def __init__(self, sites: int = 5, size: int = 8, bits: int = 32, **terms: Any) -> None:
        self.names = [f"s{i:02}" for i in range(sites)]
        self.terms: Terms = terms_for(
            [Member(name, public(name)) for name in self.names],
            nonce=bytes(range(32)),
            size=size,
            bits=bits,
            **terms,
        )
        self.trust = Trust(public("the convener"), {n: public(n) for n in self.names}, 2)
        self.collector = Collector(self.terms, CONVENER)
        self.sites = {name: self.site(name) for name in self.names}
        self.values: dict[str, Integers] = {
            name: np.arange(size, dtype=np.int64) * (i - 1) - 7 * i
            for i, name in enumerate(self.names)
        }
        self.sent: list[tuple[str, str, bytes]] = []
        self.box: Mapping[str, bytes] = dict.fromkeys(self.names, self.collector.invitation())

    def site(self, name: str, used: set[bytes] | None = None) -> Participant:
        dice = SeededDice(int.from_bytes(sha256(name.encode()).digest()[:4], "little"))
        return Participant(name, key_of(name), self.trust, dice, set() if used is None else used)

    def say(self, name: str, stage: str, message: bytes) -> bytes:
        """What the site answers at that stage."""
        site = self.sites[name]
        if stage == "mask":
            return site.mask(message, self.values[name])
        return bytes(getattr(site, stage)(message))

    def stage(self, stage: str, gone: Collection[str] = (), spoil: Spoil | None = None) -> None:
        """Every site that is still there answers; the stage is closed."""
        for name, message in self.box.items():
            if name in gone:
                continue
            said = self.say(name, stage, message)
            self.sent.append((name, stage, said))
            self.collector.take(said if spoil is None else spoil(name, stage, said))
        self.box = self.collector.close()

    def up_to(self, stage: str) -> Round:
        """Play every stage before that one."""
        for earlier in STAGES[: STAGES.index(stage)]:
            self.stage(earlier)
        return self

    def play(self, gone: Mapping[str, str] | None = None) -> Integers:
        """The whole round; a site that is gone at a stage says nothing from it on."""
        gone = gone or {}
        for stage in STAGES:
            self.stage(stage, [n for n, s in gone.items() if s == stage])
        return self.collector.total()

    def sum_of(self, names: Collection[str]) -> Integers:
        return np.asarray(np.sum([self.values[name] for name in names], axis=0, dtype=np.int64))
