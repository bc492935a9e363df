"""Federation: a vault as one of several sites, and the convener, who asks the sites together."""

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
from sfumato.client.ask_terms import named_terms, no_question_term
from sfumato.client.column_expressions import col
from sfumato.client.vault import DataSet, Vault
from sfumato.dp.learning.training_task import CLASSES, SITE
from sfumato.dp.refusal import Refused
from sfumato.engines.duckdb.engine import DuckDBEngine
from sfumato.features.federated.agreement import agreed, key_of, read_agreement
from sfumato.features.federated.average_client import average
from sfumato.features.federated.convener import Convener, Progress
from sfumato.features.federated.nonce_store import SqlNonces
from sfumato.features.federated.quantiles import (
    BinnedQuantile,
    Bins,
    check_shares,
    check_width,
    quantiles_of,
)
from sfumato.features.federated.service import SiteService
from sfumato.features.federated.sum_release import SumDependencies
from sfumato.features.federated.tensor_service import Tensors
from sfumato.features.federated.tensors.tensor_processes import RoomLimits, TensorProcesses
from sfumato.features.federated.training.trained_model import TrainedModel
from sfumato.features.federated.training.training_rounds import Step, TrainingSettings, train
from sfumato.features.federated.training_release import TrainDoor
from sfumato.release.release_order import ReleaseContext
from sfumato.storage.key_files import make_secret, read_secret, site_secret
from sfumato.system.randomness import BulkRandomSource, SystemRandomSource
from sfumato.vault.encryption_at_rest import AtRest
from sfumato.wire.query_json import refusal_shape

if TYPE_CHECKING:
    from sfumato.client.ask_terms import Json, Number
    from sfumato.storage.records_database import Records
    from sfumato.vault.ports import Catalogue


def site_of(  # noqa: PLR0913, PLR0917  # the parts of a vault
    root: Path,
    door: ReleaseContext,
    catalogue: Catalogue,
    records: Records,
    rooms: RoomLimits | None = None,
    rest: AtRest | None = None,
) -> SiteService:
    """Return the service by which a vault is a site of federations.

    With `rooms`, it also serves remote tensors.
    """
    dice = SystemRandomSource()

    @cache
    def identity() -> Ed25519PrivateKey:
        secret = site_secret(root / "keys" / "site", dice, rest)
        return Ed25519PrivateKey.from_private_bytes(secret)

    @cache
    def nonces() -> SqlNonces:
        return SqlNonces(records)

    # a source for bulk draws, because noise and dithers need a million bytes a round
    many = BulkRandomSource()
    sums = SumDependencies(door.ledger, door.engine, many, door.code)
    trainer = None
    if isinstance(door.engine, DuckDBEngine):
        trainer = TrainDoor(
            door.ledger, door.engine, many, lambda round_: nonces().take(round_), door.code
        )
    tensors = Tensors(None if rooms is None else TensorProcesses(rooms))
    return SiteService(sums, catalogue, nonces, identity, trainer, tensors=tensors)


def new_convener(path: str | os.PathLike[str]) -> str:
    """Create a convener's secret key in a new file.

    Args:
        path: The new file; keep it secret.

    Returns:
        The public key, in hexadecimal, for the agreement.

    Raises:
        Refused: `vault-exists` if the file exists already.
    """
    if Path(path).exists():
        raise Refused(
            "vault-exists", f"The key file {path} already exists.", "Choose a new file for the key."
        )
    make_secret(Path(path), SystemRandomSource())
    return _key(path).public_key().public_bytes_raw().hex()


def new_agreement(  # noqa: PLR0913  # the terms of an agreement
    name: str,
    *,
    convener: str,
    sites: Mapping[str, str],
    floor: int | None = None,
    colluders: int | None = None,
    neighbours: int | None = None,
) -> Json:
    """Create an agreement on secure aggregation, for the sites' owners to join.

    Args:
        name: The name of the agreement.
        convener: The convener's public key, in hexadecimal.
        sites: The public key of each site, by the name of the site.
        floor: The least number of sites in a sum; by default two thirds of them.
        colluders: How many sites may collude with the server; by default one in twenty.
        neighbours: With how many others a site shares its masks. By default it is all, up to 200
            sites; beyond that, the fewest with which no sum above the floor fails.

    Returns:
        The agreement, as JSON.

    Raises:
        Refused: `bad-federation` if the agreement would not protect the sites.
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
    """Open several sites as one vault, whose answers are noisy sums over the sites.

    Args:
        agreement: The agreement that the sites' owners joined, or its file.
        key: The convener's key file.
        sites: The vaults by their names in the agreement, each connected with your token there.
        heard: A callback for the progress of each round.
        patience_s: How long to wait for further sites once the floor has answered: so many
            seconds, and at least ten times as long as these took. Later sites are left out.

    Returns:
        A vault whose data sets are answered by the sum over the sites.

    Raises:
        Refused: `bad-federation` if the agreement is unreadable or would not protect the sites.
    """
    if isinstance(agreement, Mapping):
        shape: object = dict(agreement)
    else:
        shape = _read(Path(agreement))
    if not isinstance(shape, dict):
        shape = {}
    read = read_agreement(shape)
    return FederatedVault(Convener(read, _key(key), sites, SystemRandomSource(), heard, patience_s))


class FederatedVault(Vault):
    """Several sites as one vault: an answer contains only the sum over the sites.

    Only the sites know which data sets they share, so `vault["x"]` is not checked here.
    """

    def __init__(self, convener: Convener) -> None:
        self.convener = convener
        super().__init__(_Transport(convener))

    def __getitem__(self, name: str) -> DataSet:
        """Return the sites' data set of that name; it is checked at its first use.

        Args:
            name: The name that the data set has at the sites.

        Returns:
            The data set.
        """
        return DataSet(self, name)

    def spent(self, data_set: str) -> dict[str, float]:
        """Return the epsilon that all users together have spent of each site's data set.

        Args:
            data_set: The name of the data set.

        Returns:
            The spent epsilon by site, for the sites that can be reached.
        """
        return self.convener.spent(data_set)

    @named_terms(no_question_term)
    def quantiles(  # noqa: PLR0913  # the terms of a question
        self,
        data_set: str,
        column: str,
        at: Sequence[float],
        *,
        width: Number,
        epsilon: Number | None = None,
        delta: Number | None = None,
        error: Mapping[str, Number] | None = None,
        max_groups: int | None = None,
        max_rows: int | None = None,
        op: str | None = None,
        fresh: bool | None = None,
    ) -> Quantiles:
        """Find the bins that contain quantiles of all sites' rows.

        It is one noisy sum over the sites, of the counts by bin.

        Args:
            data_set: The name of the data set.
            column: The numeric column.
            at: The probabilities of the quantiles, from 0 to 1.
            width: The width of a bin.
            epsilon: The price at each site.
            delta: The delta to spend.
            error: As in `DataSet.ask`.
            max_groups: The contribution bound: how many bins a person counts in at most.
            max_rows: The contribution bound: how many rows of a person count at most in each bin.
            op: As in `DataSet.ask`.
            fresh: As in `DataSet.ask`.

        Returns:
            A bin for each quantile, and the answer with the counts.

        Raises:
            Refused: `bad-budget`, `budget-exceeded` at a site, `sum-too-few`, or `not-in-language`
                for a term that a sum over sites does not support.
        """
        check_shares(at)
        check_width(width)
        binned = self[data_set].group_by(start=col(column).bins(width)).count(name="rows")
        counts = binned.ask(
            epsilon=epsilon, delta=delta, error=error, max_groups=max_groups, max_rows=max_rows,
            op=op, fresh=fresh,
        )  # fmt: skip
        told = [place for place, row in enumerate(counts.rows) if row[0] is not None]
        bins = Bins(
            [float(str(counts.rows[place][0])) for place in told],
            [float(str(counts.rows[place][1])) for place in told],
            [counts.std[place][1] or 0.0 for place in told],
            float(width),
        )
        return Quantiles(quantiles_of(bins, at), counts)

    def secure_average(self, data_set: str, sql: str) -> Answer:
        """Compute an exact sum over all sites, `secure-average (not DP)`, if every card allows it.

        It has no noise and costs no epsilon. Each card limits how many of them are released.

        Args:
            data_set: The name of the data set.
            sql: The question, as SQL.

        Returns:
            The exact sums, labelled as not differentially private.

        Raises:
            Refused: `average-not-allowed` if a card does not allow it, or `sum-too-few`.
        """
        return Answer.of(average(self.convener, data_set, sql))

    def train(  # noqa: PLR0913  # the terms of a training
        self,
        data_set: str,
        *,
        features: Sequence[str],
        target: str,
        epsilon: Number,
        delta: Number,
        rounds: int,
        people: int,
        hidden: Sequence[int] = (),
        activation: str = "relu",
        loss: str = CLASSES,
        clip: Number = 1,
        rate: float = 1.0,
        momentum: float = 0.9,
        max_rows: int = 1,
        local: int = 0,
        local_rate: Number = 0,
        proximal: Number = 0,
        weights: Mapping[str, Any] | None = None,  # Any: numbers in any form
        each: str = SITE,
        sample: Number = 1,
        public: Sequence[Mapping[str, Any]] = (),  # Any: cells of rows
        image: Sequence[int] = (),
        conv: Sequence[Mapping[str, int]] = (),
        embed: Mapping[str, int] | None = None,
        heard: Callable[[Step], None] = lambda _: None,
    ) -> TrainedModel:
        """Train a network over all sites, with noisy sums of updates (DP-FedAvg).

        Each site pays once for all rounds, in the first round that it takes part in.

        Args:
            data_set: The name of the data set.
            features: The input columns.
            target: The column to predict.
            epsilon: The price of the training, at each site.
            delta: The delta that each site spends.
            rounds: How many rounds.
            people: Your guess of the number of people at all sites together; a public divisor.
            hidden: The widths of the hidden layers.
            activation: The activation function: "relu" or "tanh".
            loss: The loss function: "classes" (cross-entropy) or "squares" (squared error).
            clip: The norm to which each update is clipped, of a site or a person (see `each`).
            rate: The server's learning rate, for each sum.
            momentum: The momentum: the share of the last step that is kept.
            max_rows: The contribution bound: how many rows of a person count at most.
            local: How many local steps a site takes in each round before it sends its sum.
            local_rate: The learning rate of local steps.
            proximal: The FedProx penalty on distance from the common model.
            weights: Public weights of the sites' updates.
            each: Whose local updates are clipped: "site" or "person".
            sample: The probability of each person to be in a round (Poisson subsampling); 1 takes
                all people.
            public: Public rows on which the model's loss is measured and shown to the sites.
            image: Channels, height and width, if the first features are the numbers of an image.
            conv: The convolutional layers; each is a mapping.
            embed: The columns with an embedding table, and its width.
            heard: A callback for each round.

        Returns:
            The trained model.

        Raises:
            Refused: `budget-exceeded` at a site, `sum-too-few`, or `bad-federation`.
        """
        course = TrainingSettings(
            data_set=data_set, features=features, target=target, epsilon=epsilon, delta=delta,
            rounds=rounds, people=people, hidden=hidden, activation=activation, loss=loss,
            clip=clip, rate=rate, momentum=momentum, max_rows=max_rows, local=local,
            local_rate=local_rate, proximal=proximal, weights={} if weights is None else weights,
            each=each, sample=sample, public=public, image=image, conv=conv,
            embed={} if embed is None else embed,
        )  # fmt: skip
        return train(self.convener, course, heard)


@dataclass(frozen=True)
class Quantiles:
    """Quantiles of a column over all sites, and the answer with the counts by bin."""

    of: tuple[BinnedQuantile, ...]
    counts: Answer


class _Transport:
    """Sends a federation's calls to several sites, as if they were one vault."""

    def __init__(self, convener: Convener) -> None:
        self._convener = convener

    def call(self, verb: str, body: Json) -> Json:
        """Call a verb; return the JSON of the answer or of the refusal."""
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
            f"A federation cannot answer the request {verb!r}.",
            "Ask for an answer, a price, the budget, a card or the data sets. Send any other "
            "request to one site.",
        )


def _read(path: Path) -> object:
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None


def _key(path: str | os.PathLike[str]) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(read_secret(Path(path)))
