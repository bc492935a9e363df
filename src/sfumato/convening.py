"""A part of the app: what a vault is as a site, and who convenes sums over several sites."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sfumato.client.answer import Answer
from sfumato.client.columns import col
from sfumato.client.vault import Vault
from sfumato.core.at_rest import AtRest
from sfumato.core.federation import agreed, key_of, read_agreement
from sfumato.core.refusal import Refused
from sfumato.dice import StretchedDice, SystemDice
from sfumato.door import Door, SumDoor, TrainDoor
from sfumato.engines.duckdb import DuckDBEngine
from sfumato.federated.averaging import average
from sfumato.federated.convener import Convener, Progress
from sfumato.federated.quantiles import (
    BinnedQuantile,
    Bins,
    check_shares,
    check_width,
    quantiles_of,
)
from sfumato.federated.rooms import RoomLimits, Rooms
from sfumato.federated.trained import TrainedModel
from sfumato.federated.training import Course, Step, train
from sfumato.services.federated import Sites, Tensors
from sfumato.stores.keys import make_secret, read_secret, site_secret
from sfumato.stores.rounds import SqlNonces
from sfumato.wire import refusal_shape

if TYPE_CHECKING:
    from sfumato.client.terms import Json, Number
    from sfumato.core.ports import Catalogue
    from sfumato.stores.records import Records


def site_of(  # noqa: PLR0913, PLR0917  # what a vault has of its own
    root: Path,
    door: Door,
    catalogue: Catalogue,
    records: Records,
    rooms: RoomLimits | None = None,
    rest: AtRest | None = None,
) -> Sites:
    """Return what the vault in that folder does as a site; it holds tensors if there are rooms."""
    dice = SystemDice()

    @cache
    def identity() -> Ed25519PrivateKey:
        secret = site_secret(root / "keys" / "site", dice, rest)
        return Ed25519PrivateKey.from_private_bytes(secret)

    @cache
    def nonces() -> SqlNonces:
        return SqlNonces(records)

    many = StretchedDice()  # noise and dithers take a million bytes a round
    sums = SumDoor(door.ledger, door.engine, many, door.code)
    trainer = None
    if isinstance(door.engine, DuckDBEngine):
        trainer = TrainDoor(
            door.ledger, door.engine, many, lambda round_: nonces().take(round_), door.code
        )
    tensors = Tensors(None if rooms is None else Rooms(rooms))
    return Sites(sums, catalogue, nonces, identity, trainer, tensors=tensors)


def new_convener(path: str | os.PathLike[str]) -> str:
    """Write a new convener's secret key to a file of one's own; return the public half (hex)."""
    if Path(path).exists():
        raise Refused(
            "vault-exists", f"{path} is there already.", "Choose a new place for the key."
        )
    make_secret(Path(path), SystemDice())
    return _key(path).public_key().public_bytes_raw().hex()


def new_agreement(  # noqa: PLR0913  # what sites agree on
    name: str,
    *,
    convener: str,
    sites: Mapping[str, str],
    floor: int | None = None,
    colluders: int | None = None,
    neighbours: int | None = None,
) -> Json:
    """Return an agreement for the sites' owners to join; keys are as they were said, in hex.

    Left out, the floor is two thirds of the sites, and one in twenty may collude. Of `neighbours`,
    with whom a site shares its masks, everybody is one up to 200 sites; beyond it they are the
    fewest with which a sum never fails above the floor.
    """
    keys = {site: key_of(key) for site, key in sites.items()}
    said = agreed(
        name,
        convener=key_of(convener),
        sites=keys,
        floor=floor,
        colluders=colluders,
        neighbours=neighbours,
    )
    return said.as_json()


def federation(
    agreement: Mapping[str, object] | str | os.PathLike[str],
    *,
    key: str | os.PathLike[str],
    sites: Mapping[str, Vault],
    heard: Callable[[Progress], None] = lambda _: None,
    patience_s: float = 300.0,
) -> FederatedVault:
    """Return several sites' data sets, to be asked as if they were one.

    `agreement` is what the sites' owners have joined, or its file; `key` the convener's key file;
    `sites` are vaults by the names of the agreement, each connected with a token of yours there.
    Once a floor of them has answered, the others have `patience_s` seconds, and at least ten times
    as long as these took; who is later has left the round.
    """
    if isinstance(agreement, Mapping):
        shape: object = dict(agreement)
    else:
        shape = _read(Path(agreement))
    if not isinstance(shape, dict):
        shape = {}
    read = read_agreement(shape)
    return FederatedVault(Convener(read, _key(key), sites, SystemDice(), heard, patience_s))


class FederatedVault(Vault):
    """What several sites hold together: ask it, and only the sum over the sites comes back."""

    def __init__(self, convener: Convener) -> None:
        self.convener = convener
        super().__init__(_Transport(convener))

    def spent(self, data_set: str) -> dict[str, float]:
        """Return the epsilon that each site's data set has spent, whoever asked it."""
        return self.convener.spent(data_set)

    def quantiles(
        self, data_set: str, column: str, at: Sequence[float], *, width: Number, **terms: Any
    ) -> Quantiles:
        """Return the bins of that width in which shares of all sites' rows are reached.

        One sum over the sites, of each bin's count with its noise; it is paid as any question is.
        """
        check_shares(at)
        check_width(width)
        binned = self[data_set].group_by(start=col(column).bins(width)).count(name="rows")
        counts = binned.ask(**terms)
        told = [place for place, row in enumerate(counts.rows) if row[0] is not None]
        bins = Bins(
            [float(str(counts.rows[place][0])) for place in told],
            [float(str(counts.rows[place][1])) for place in told],
            [counts.std[place][1] or 0.0 for place in told],
            float(width),
        )
        return Quantiles(quantiles_of(bins, at), counts)

    def secure_average(self, data_set: str, sql: str) -> Answer:
        """Return an exact sum over all sites, `secure-average (not DP)`, if every card allows it.

        It costs no epsilon and is no private answer: each card says how many of them may leave.
        """
        return Answer.of(average(self.convener, data_set, sql))

    def train(
        self, data_set: str, *, heard: Callable[[Step], None] = lambda _: None, **course: Any
    ) -> TrainedModel:
        """Return a network that all sites have trained; see `federated/training.py` on a course.

        Each site pays once, for all rounds, in the first round that it is in.
        """
        return train(self.convener, Course(data_set, **course), heard)


@dataclass(frozen=True)
class Quantiles:
    """Quantiles of a column over sites, and the answer whose counts they are read off."""

    of: tuple[BinnedQuantile, ...]
    counts: Answer


class _Transport:
    """The verbs of one vault, answered by several."""

    def __init__(self, convener: Convener) -> None:
        self._convener = convener

    def call(self, verb: str, body: Json) -> Json:
        """Return the answer's shape, or the refusal's."""
        try:
            return self._answer(verb, body)
        except Refused as refused:
            shape = refusal_shape(refused)
        return shape

    def _answer(self, verb: str, body: Json) -> Json:
        match verb:
            case "ask":
                return self._convener.ask(body)
            case "price":
                return self._convener.price(body)
            case "budget":
                return self._convener.budget(str(body["data_set"]))
            case "card" | "data-sets":
                return self._convener.from_any(verb, body)
        raise Refused(
            "not-in-language",
            f"Several sites together do not answer {verb!r}.",
            "Ask them a question, or look at each site by itself.",
        )


def _read(path: Path) -> object:
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None


def _key(path: str | os.PathLike[str]) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(read_secret(Path(path)))
