"""The convener of secure sums: it relays messages between sites and learns only the sum.

The convener is untrusted. It carries messages between the sites and a Collector, over any
transport. A site that refuses or is unreachable has dropped out. Below the agreement's floor there
is no sum. Needs no PyTorch.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Protocol, cast

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sfumato.dp.ports import RandomSource
from sfumato.dp.refusal import Refused
from sfumato.dp.secure_aggregation.collector import Collector
from sfumato.dp.secure_aggregation.round_terms import NONCE_BYTES
from sfumato.features.federated.agreement import Agreement, bad_federation
from sfumato.features.federated.parallel_calls import PATIENCE_S
from sfumato.features.federated.parallel_calls import call_all_sites as heard
from sfumato.features.federated.site_replies import (
    Json,
    is_answer,
    is_budget,
    is_price,
    is_receipt,
    is_reply,
    majority_reply,
    malformed,
)

OF_ACCOUNTS: Final = ("left", "odds")  # the keys of a price that may differ between sites
NAMED: Final = 4  # the most site names that are listed for one reason
STAGES: Final = ("join", "share", "mask", "agree", "reveal")
_ASKED: Final = {"data_set", "sql", "question", "epsilon", "delta", "max_groups", "max_rows"}


class Site(Protocol):
    """A client for one site of a federation, signed in there as the convener's user."""

    def call(self, verb: str, body: Json) -> Json:
        """Call a verb (API operation) of the site; return its reply, or raise its refusal."""
        ...


@dataclass(frozen=True)
class Progress:
    """A snapshot of a running round: its last finished stage, remaining sites, and refusals."""

    stage: str
    left: tuple[str, ...]
    gone: Mapping[str, Refused]


@dataclass
class Round:
    """The state of one secure-sum round at the convener: collector, refusals and receipts.

    The object changes at every stage.
    """

    collector: Collector
    body: Json
    nonce: str
    gone: dict[str, Refused] = field(default_factory=dict)
    receipts: dict[str, Json] = field(default_factory=dict)


@dataclass(frozen=True)
class Convener:
    """The client that runs secure sums over an agreement's sites, and learns only the sums."""

    agreement: Agreement
    key: Ed25519PrivateKey
    sites: Mapping[str, Site]
    dice: RandomSource
    heard: Callable[[Progress], None] = lambda _: None
    patience_s: float = PATIENCE_S

    def __post_init__(self) -> None:
        if self.key.public_key().public_bytes_raw() != self.agreement.convener:
            raise bad_federation("the key is not the convener's")
        if self.sites.keys() != {member.name for member in self.agreement.members}:
            raise bad_federation(
                "connections must be given for each of its sites, and for no other"
            )

    def ask(self, asked: Json) -> Json:
        """Ask the sites one query; return the noisy answer and the price charged at each site."""
        body = self._body(asked)
        priced, gone = self.priced(body)
        first = next(iter(priced.values()))
        return self._answer(self.run_round(body, priced, gone, str(first["about"])))

    def run_round(
        self, body: Json, priced: Mapping[str, Json], gone: Mapping[str, Refused], about: str
    ) -> Round:
        """Run one secure-aggregation round with the sites that gave a price; return its state.

        `priced` has the sites' prices, and `gone` the refusals of left-out sites. `about` is the
        hash that identifies the sum in the round's terms.
        """
        first = next(iter(priced.values()))
        bits = max(int(one["bits"]) for one in priced.values())
        nonce = self.dice.draw(NONCE_BYTES)
        terms = self.agreement.terms(nonce, int(first["size"]), bits, about)
        round_ = Round(Collector(terms, self.key), body, nonce.hex(), dict(gone))
        self._play(round_, {name: round_.collector.invitation() for name in priced})
        return round_

    def price(self, asked: Json) -> Json:
        """Return a query's price at the sites and its expected error; spends nothing."""
        priced, gone = self.priced(self._body(asked))
        least = min(priced, key=lambda name: float(priced[name]["left"]["next_epsilon"]))
        return {
            **majority_reply(priced, least),
            **{word: priced[least][word] for word in OF_ACCOUNTS if word in priced[least]},
            "fits": all(one["fits"] for one in priced.values()),
            "sites": sorted(priced),
            "left_out": {name: one.code for name, one in sorted(gone.items())},
        }

    def budget(self, data_set: str) -> Json:
        """Return the budget of the first site by name; its `yours` lists all sites' accounts."""
        said, gone = self._everywhere("budget", {n: {"data_set": data_set} for n in self.sites})
        said = {name: one for name, one in said.items() if is_budget(one)}
        self._check_left(said.keys(), gone)
        accounts: Json = {}
        for name, one in sorted(said.items()):
            accounts[f"{name}: data set"] = {key: one[key] for key in ("cap", "spent", "left")}
            accounts[f"{name}: people"] = one["people"]
            accounts |= {f"{name}: {account}": held for account, held in one["yours"].items()}
        return {**said[min(said)], "yours": accounts}

    def from_any(self, verb: str, body: Json) -> Json:
        """Call the verb at one site after another, and return the first reply.

        If every site refuses, raise the refusal of the first.
        """
        refusals = []
        for site in self.sites.values():
            try:
                return site.call(verb, body)
            except Refused as refused:
                refusals.append(refused)
        raise refusals[0]

    def spent(self, data_set: str) -> dict[str, float]:
        """Return the epsilon spent on the data set at each reachable site, by site name."""
        said, _ = self._everywhere("budget", {n: {"data_set": data_set} for n in self.sites})
        told = {name: one for name, one in sorted(said.items()) if is_budget(one)}
        return {name: float(one["spent"]["epsilon"]) for name, one in told.items()}

    def call_all(self, verb: str, body: Json) -> dict[str, Json]:
        """Call a verb at all sites; return the replies by site, checked only to be JSON objects.

        Sites that refuse are missing from the result.
        """
        return self._everywhere(verb, dict.fromkeys(self.sites, body))[0]

    # --- helpers ------------------------------------------------------------------------------

    def _body(self, asked: Json) -> Json:
        unknown = sorted(k for k, v in asked.items() if k not in _ASKED and v not in (None, False))
        if unknown:
            raise Refused(
                "not-in-language",
                f"A sum over several sites takes no argument {unknown[0]!r}.",
                "Give a question, an epsilon and a delta.",
            )
        kept = {key: value for key, value in asked.items() if key in _ASKED}
        return {**kept, "federation": self.agreement.name}

    def priced(
        self, body: Json, is_more: Callable[[Json], bool] = lambda _: True
    ) -> tuple[dict[str, Json], dict[str, Refused]]:
        """Ask every site for the price of a sum; return the prices and the refusals, by site.

        Refuse if the sites disagree on the terms of the sum.

        A site is left out if its reply is not a valid price, or if `is_more` rejects the reply.
        """
        said_all, gone = self._everywhere("price-sum", dict.fromkeys(self.sites, body))
        priced = {name: one for name, one in said_all.items() if is_price(one) and is_more(one)}
        gone |= {name: malformed() for name in said_all.keys() - priced.keys()}
        self._check_left(priced.keys(), gone)
        said: dict[tuple[str, int], list[str]] = {}
        for name in sorted(priced):
            terms = str(priced[name]["about"]), int(priced[name]["size"])
            said.setdefault(terms, []).append(name)
        if len(said) > 1:
            one, other = [names[0] for names in said.values()][:2]
            raise Refused(
                "sum-not-trusted",
                f"The sites {one!r} and {other!r} cannot be added up: their data cards differ in "
                "bounds, steps, keys or limits, or their owners joined different agreements.",
                "Ask the owners to declare the question's columns and limits alike, and to join "
                "the same agreement.",
            )
        return {name: priced[name] for name in sorted(priced)}, gone

    def _play(self, round_: Round, box: Mapping[str, bytes]) -> None:
        for stage in STAGES:
            said, gone = self._stage(round_, stage, box)
            round_.gone |= gone
            for name, reply in said.items():
                self._take(round_, name, reply)
            left = sorted(set(box) - round_.gone.keys())
            self.heard(Progress(stage, tuple(left), dict(round_.gone)))
            self._check_left(left, round_.gone)
            box = round_.collector.close()

    def _stage(
        self, round_: Round, stage: str, box: Mapping[str, bytes]
    ) -> tuple[dict[str, Json], dict[str, Refused]]:
        sent = {name: {"message": _text(message)} for name, message in box.items()}
        if stage == "join":
            return self._everywhere("join-sum", {n: {**round_.body, **s} for n, s in sent.items()})
        where = {"data_set": round_.body["data_set"], "round": round_.nonce, "stage": stage}
        return self._everywhere("go-on-with-sum", {n: {**where, **s} for n, s in sent.items()})

    def _take(self, round_: Round, name: str, reply: Json) -> None:
        """Pass a site's message to the collector. An invalid message drops the site from the round.

        The site's receipt is recorded even then, because the site has paid.
        """
        if is_receipt(reply.get("receipt"), round_.body.get("guarantee")):
            round_.receipts[name] = reply["receipt"]
        try:
            said = round_.collector.take(_bytes(reply.get("message")))
            if said != name:
                raise _not_its_own()
        except Refused as refused:
            round_.gone[name] = refused

    def _check_left(self, left: Any, gone: Mapping[str, Refused]) -> None:
        """Refuse if fewer sites are left than the agreement's floor (least number of sites).

        If all left-out sites refuse with the same code, the refusal has that code. The cause of the
        refusal lists the sites' reasons.
        """
        if len(left) >= self.agreement.floor:
            return
        codes = {one.code for one in gone.values()}
        code = codes.pop() if len(codes) == 1 else "sum-too-few"
        raise Refused(
            code,
            f"{len(left)} sites are left, but the floor is {self.agreement.floor}, so there is "
            f"no sum. {'; '.join(_reasons(gone))}",
            "Check the named sites, and ask again.",
        )

    def _answer(self, round_: Round) -> Json:
        survivors = round_.collector.survivors
        total = [int(one) for one in round_.collector.total()]
        body = {**round_.body, "total": total, "sites": len(survivors)}
        answer = self.shown(body)
        paid = dict(sorted(round_.receipts.items()))
        silent = [name for name in survivors if name not in paid]
        beside = [f"{name}: {one['not_dp']}" for name, one in paid.items() if "not_dp" in one]
        receipt = {
            **answer["receipt"],
            "op": f"sum-{round_.nonce}",
            "federation": self.agreement.name,
            "sites": list(survivors),
            "left_out": {
                name: one.code for name, one in sorted(round_.gone.items()) if name not in survivors
            },
            "at_each_site": paid,
            "free": False,
            "charged": {name: one["epsilon"] for name, one in paid.items()},
            "left": {"next_epsilon": min((_next_of(one) for one in paid.values()), default=0.0)},
            **({"without_receipt": silent} if silent else {}),
            **_wrong(round_.collector),
            **({"not_dp": "; ".join(beside)} if beside else {}),
        }
        return {**answer, "receipt": receipt}

    def shown(self, body: Json) -> Json:
        """Return the table that most sites compute from a finished sum; refuse if too few agree.

        The table is post-processing of released numbers, so honest sites agree. More sites must
        agree than may collude. The receipt has, field by field, what most of the agreeing sites
        state.
        """
        said, gone = self._everywhere("show-sum", dict.fromkeys(self.sites, body))
        if not said:
            raise min(gone.items())[1]
        tables: dict[str, list[str]] = {}
        for name in sorted(said):
            table = {key: value for key, value in said[name].items() if key != "receipt"}
            tables.setdefault(json.dumps(table, sort_keys=True, default=str), []).append(name)
        alike = max(tables.values(), key=len)
        if len(alike) <= self.agreement.colluders:
            raise Refused(
                "sum-not-trusted",
                f"Only {len(alike)} sites report the same sum. That many dishonest sites could "
                "have agreed on a false one.",
                "Ask again when more sites can be reached.",
            )
        receipts = {name: said[name]["receipt"] for name in alike if is_answer(said[name])}
        if not receipts:
            raise malformed()
        return {**said[alike[0]], "receipt": majority_reply(receipts, min(receipts))}

    def _everywhere(
        self, verb: str, bodies: Mapping[str, Json]
    ) -> tuple[dict[str, Json], dict[str, Refused]]:
        """Call the verb at all sites in parallel; return the replies and the refusals.

        As many sites as the agreement's floor must answer first. Then a site that takes much longer
        counts as refusing.
        """
        said: dict[str, Json] = {}
        gone: dict[str, Refused] = {}
        calls = {name: partial(self.sites[name].call, verb, body) for name, body in bodies.items()}
        for name, reply in heard(calls, self.agreement.floor, self.patience_s):
            if isinstance(reply, Refused):
                gone[name] = reply
            elif is_reply(reply):
                said[name] = cast("Json", reply)
            else:
                gone[name] = malformed()
        return said, gone


def _wrong(collector: Collector) -> Json:
    """Return a round's wrong key shares as JSON: which site showed each, and which site made it.

    The sum is right without these shares, but one of the two sites lied. Without wrong shares, the
    result is {}.
    """
    found = [{"shown_by": shown, "dealt_by": dealt} for shown, dealt in collector.wrong_shares]
    return {"wrong_shares": found} if found else {}


def _reasons(gone: Mapping[str, Refused]) -> list[str]:
    """Return each reason why sites dropped out, once, with the names of a few of these sites."""
    alike: dict[str, list[str]] = {}
    for name, one in sorted(gone.items()):
        alike.setdefault(f"{one.code} ({one.cause})", []).append(name)
    return [f"{_named(names)}: {reason}" for reason, names in alike.items()]


def _named(names: list[str]) -> str:
    more = len(names) - NAMED
    return ", ".join(names) if more <= 0 else f"{', '.join(names[:NAMED])} and {more} more"


def _next_of(receipt: Json) -> float:
    return float(receipt["left"]["next_epsilon"])


def _text(message: bytes) -> str:
    return base64.b64encode(message).decode("ascii")


def _bytes(text: object) -> bytes:
    try:
        return base64.b64decode(str(text), validate=True)
    except ValueError:
        return b""  # every stage refuses an empty message


def _not_its_own() -> Refused:
    return Refused(
        "sum-message-refused",
        "A site sent a message in another site's name.",
        "Ask the site's owner to check its software and version.",
    )
