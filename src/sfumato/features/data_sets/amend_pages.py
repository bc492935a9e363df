"""Console pages to amend a data card: the form, a list of the changes, and the signature.

Only changed fields are sent, so the rest of the card stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from starlette.responses import Response

from sfumato.dp.refusal import Refused
from sfumato.features.data_sets.earlier_card import next_version
from sfumato.features.data_sets.pages import Shape
from sfumato.server.console.forms import Form
from sfumato.server.console.page import Page
from sfumato.server.console.visit import Visit

LABELS: Final[Mapping[str, str]] = {
    "version": "Version",
    "who": "Groups that may ask",
    "user_epsilon": "ε of each user",
    "user_delta": "δ of each user",
    "group_epsilon": "ε of each group",
    "group_delta": "δ of each group",
    "two": "Raising a cap needs a second person",
    "delta_per_request": "δ that a question may spend by default",
    "size": "Public size",
    "max_groups": "Max groups per person",
    "max_rows": "Max rows per person and group",
    "average_releases": "Most sums over sites without noise",
    "average_sites": "Minimum number of sites",
}
AVERAGES: Final = ("average_releases", "average_sites")
CAPS: Final = ("user_epsilon", "user_delta", "group_epsilon", "group_delta", "two")
TWO_PEOPLE: Final = "two people"  # the card's value of `raise` that requires a second person


@dataclass(frozen=True)
class Change:
    """One changed field of the data card, with its old and new value."""

    label: str
    before: str
    after: str


async def form(visit: Visit) -> Response:
    """Show the form to amend a data card, with the current card."""
    card = await _own_card(visit)
    standing = standing_of(card)
    return _form(visit, card, {**standing, "version": next_version(standing["version"])}, None)


async def amend(visit: Visit) -> Response:
    """Show the changes of a data card, sign them, or return to the form with what was typed."""
    card, typed = await _own_card(visit), typed_of(visit.form)
    if visit.form.text("do") == "edit":
        return _form(visit, card, typed, None)
    if visit.form.text("do") != "sign":
        return _shown(visit, card, typed)
    body = {"data_set": card["name"], "instead_of": visit.form.raw("instead_of")}
    said, refused = await visit.tried(
        "amend", lambda: {**body, "card": changed(standing_of(card), visit.form)}
    )
    if said is None:
        return _form(visit, card, typed, refused)
    return visit.go(f"{visit.request.url.path.rpartition('/')[0]}")


def _shown(visit: Visit, card: Shape, typed: Mapping[str, str]) -> Response:
    """Show the changes of a data card before the signature; for an invalid field, the form."""
    standing, refused = standing_of(card), None
    try:
        changed(standing, visit.form)
    except Refused as refusal:
        refused = refusal
    if refused is not None:
        return _form(visit, card, typed, refused)
    changes = [Change(LABELS[n], standing[n], typed[n]) for n in LABELS if standing[n] != typed[n]]
    return visit.page("amended.html", card=card, changes=changes, typed=typed)


def _form(
    visit: Visit, card: Shape, values: Mapping[str, str], refused: Refused | None
) -> Response:
    return visit.page("amend.html", refused, card=card, values=values, labels=LABELS)


async def _own_card(visit: Visit) -> dict[str, Any]:  # Any: JSON of the wire
    """Return the data card if the visitor owns the data set.

    Another owner's card is refused like one that does not exist.
    """
    name = {"data_set": visit.at("data_set")}
    await visit.call("grants", name)  # refuses everybody but the owner
    return await visit.call("card", name)


def standing_of(card: Shape) -> dict[str, str]:
    """Return the form's texts for the data card in force, to compare the typed ones with."""
    caps = card["caps"]
    pairs = {
        f"{of}_{name}": _number((caps[of] or {}).get(name))
        for of in ("user", "group")
        for name in ("epsilon", "delta")
    }
    counts = {n: _number(card[n]) for n in ("delta_per_request", "size", "max_groups", "max_rows")}
    two = "yes" if caps["raise"] == TWO_PEOPLE else ""
    found = {"version": card["version"], "who": "\n".join(card["who"]), "two": two}
    averages = card.get("secure_average", {})
    found |= {f"average_{name}": _number(averages.get(name)) for name in ("releases", "sites")}
    return {name: {**found, **pairs, **counts}[name].strip() for name in LABELS}


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return str(int(value)) if value == int(value) else repr(value)


def typed_of(form: Form) -> dict[str, str]:
    """Return the text that the visitor typed into each field of the form."""
    return {name: form.text(name) for name in LABELS}


def changed(standing: Mapping[str, str], form: Form) -> dict[str, object]:
    """Return the data card's keys that the form changes; refuse a form that changes no field.

    A new version alone is no change.
    """
    typed = typed_of(form)
    names = {name for name in LABELS if typed[name] != standing[name]}
    if names <= {"version"}:
        raise Refused(
            "bad-request",
            "The form changes nothing on the data card but the name of its version.",
            "Change another field too, or leave the card as it is.",
        )
    made: dict[str, object] = {n: read(form) for n, read in _KEYS.items() if n in names}
    if "who" in names:
        made["ask"] = {"who": _lines(form.text("who"))}
    if names & set(AVERAGES):
        made["secure_average"] = averages_of(form)  # None removes the key from the card
    return {**made, "caps": _caps(form)} if names & set(CAPS) else made


def _caps(form: Form) -> dict[str, object]:
    caps: dict[str, object] = {"raise": TWO_PEOPLE} if form.has("two") else {}
    for of in ("user", "group"):
        pairs = {name: form.number(f"{of}_{name}") for name in ("epsilon", "delta")}
        if cap := {name: value for name, value in pairs.items() if value is not None}:
            caps[of] = cap
    return caps


def averages_of(form: Form) -> dict[str, object] | None:
    """Return the form's limits on sums over sites without noise; None if the fields are empty."""
    pairs = {name: form.count(f"average_{name}") for name in ("releases", "sites")}
    return {name: count for name, count in pairs.items() if count is not None} or None


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.split("\n") if line.strip()]


_KEYS: Final[Mapping[str, Callable[[Form], object]]] = {
    "version": lambda form: form.text("version"),
    "delta_per_request": lambda form: form.number("delta_per_request"),
    "size": lambda form: form.count("size"),
    "max_groups": lambda form: form.count("max_groups"),
    "max_rows": lambda form: form.count("max_rows"),
}
_AT: Final = "/data-sets/{data_set}/amend"
_SENT: Final = ("card", "grants", "amend")
PAGES: Final = (Page("GET", _AT, form, _SENT), Page("POST", _AT, amend, _SENT))
