"""Convene a sum over sites without noise: over all sites of the agreement, or none."""

from __future__ import annotations

from dataclasses import replace

from sfumato.dp.refusal import Refused
from sfumato.features.federated.convener import Convener
from sfumato.features.federated.site_replies import Json
from sfumato.vault.card.secure_average_terms import GUARANTEE


def average(convener: Convener, data_set: str, sql: str) -> Json:
    """Return the exact sum over all sites if every site's card allows it, else refuse."""
    agreement = convener.agreement
    all_of_them = replace(convener, agreement=replace(agreement, floor=len(agreement.members)))
    body: Json = {
        "data_set": data_set,
        "federation": agreement.name,
        "sql": sql,
        "guarantee": GUARANTEE,
    }
    priced, gone = all_of_them.priced(body)
    _check_left(priced)
    first = next(iter(priced.values()))
    round_ = all_of_them.run_round(body, priced, gone, str(first["about"]))
    total = [int(one) for one in round_.collector.total()]
    sites = list(round_.collector.survivors)
    answer = all_of_them.shown({**body, "total": total, "sites": len(sites)})
    receipt: Json = {
        **answer["receipt"],
        "op": f"average-{round_.nonce}",
        "federation": agreement.name,
        "sites": sites,
        "left_out": {},
        "at_each_site": dict(sorted(round_.receipts.items())),
        "free": False,
        "charged": {},
        "left": first["left"],
    }
    return {**answer, "receipt": receipt}


def _check_left(priced: dict[str, Json]) -> None:
    """Refuse if a site's card allows no further sum without noise.

    This happens before any site writes the sum to its ledger.
    """
    spent = sorted(name for name, one in priced.items() if one["fits"] is not True)
    if spent:
        raise Refused(
            "average-not-allowed",
            f"The site {spent[0]!r} allows no further sum without noise: its data card's limit "
            "is reached.",
            "Ask for the sum with noise: give an epsilon.",
        )
