"""What a new version of a data set keeps of the card of the version before it.

The three steps ask about the columns again. The terms that limit or allow releases stay, unless the
owner changes them: caps, who may raise them, the δ of a question, sums without noise and output
checking. Without a cap, each user could spend the whole budget.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

Answers = Mapping[str, str]
Shape = Mapping[str, Any]  # Any: JSON of the wire
EARLIER: Final = "earlier"  # the answer that names the data set and its version before
_TWO_PEOPLE: Final = "two people"
_CAPS: Final = tuple(f"{of}_{name}" for of in ("user", "group") for name in ("epsilon", "delta"))
_AVERAGES: Final = ("average_releases", "average_sites")
# what the owner may let go; a second person for raises and a budget's window always stay
OPTIONAL: Final = (*_CAPS, "delta_per_request", *_AVERAGES, "airlock")
KEPT: Final = (*OPTIONAL, "two", "window")
# the answers of a proposal that nobody has touched
_UNTOUCHED: Final[Answers] = {
    "version": "1", "who": "researchers", "max_rows": "1", "max_groups": "1", "epsilon": "1",
    "delta": "0", "two": "yes",
}  # fmt: skip


def earlier_answers(card: Shape) -> dict[str, str]:
    """Return the answers that are those of the earlier card: who is protected, budget and terms."""
    made = {"version": next_version(str(card["version"])), "who": ", ".join(card["who"])}
    made |= {name: str(card[name]) for name in ("people", "unit", "max_rows", "max_groups")}
    made |= {name: _plain(card["budget"][name]) for name in ("epsilon", "delta")}
    made |= {"size": "" if card["size"] is None else str(card["size"])}
    return {**made, **_kept(card), EARLIER: f"{card['name']} {card['version']}"}


def next_version(version: str) -> str:
    """Return the next version number; "" if the current version is not a number."""
    is_counted = version.isascii() and version.isdecimal() and len(version) < 15
    return str(int(version) + 1) if is_counted else ""


def as_new_version(answers: Answers, card: Shape) -> dict[str, str]:
    """Return a form's answers as those of a new version; what the owner has typed stays.

    The people and the privacy unit are those of the earlier card, because any others are refused.
    """
    found = earlier_answers(card)
    names = {text for name, text in answers.items() if name.endswith("-name")}
    made = {
        name: text
        for name, text in found.items()
        if answers.get(name, "") in ("", _UNTOUCHED.get(name, ""))
    }
    made |= {"people": found["people"], EARLIER: found[EARLIER]}
    if found["unit"] in names or found["unit"] == "row":
        made["unit"] = found["unit"]
    return {**answers, **made}


def without_earlier(answers: Answers) -> dict[str, str]:
    """Return a form's answers without the terms of an earlier card."""
    if not answers.get(EARLIER):
        return dict(answers)
    made = {name: text for name, text in answers.items() if name not in (*KEPT, EARLIER)}
    return {**made, "two": _UNTOUCHED["two"]}


def is_version_of(answers: Answers, name: str) -> bool:
    """Return True if the answers have the terms of this data set's earlier card."""
    return answers.get(EARLIER, "").rpartition(" ")[0] == name


def with_kept(answers: Answers, earlier: Answers) -> dict[str, str]:
    """Return the answers with all terms of the earlier card that the owner may let go."""
    return {**answers, **{name: text for name, text in earlier.items() if name in OPTIONAL}}


def without_optional(answers: Answers) -> dict[str, str]:
    """Return the answers without the terms that the owner may let go.

    Caps stay if a second person has to agree to raise them: a card without them is refused.
    """
    stay = _CAPS if answers.get("two") else ()
    return {name: of for name, of in answers.items() if name not in OPTIONAL or name in stay}


def kept_terms(answers: Answers) -> list[str]:
    """Say which terms the answers have of the earlier card, and the owner may let go."""
    typed = {name: answers.get(name, "").strip() for name in KEPT}
    said = []
    for of in ("user", "group"):
        if epsilon := typed[f"{of}_epsilon"]:
            delta = typed[f"{of}_delta"]
            said.append(
                f"each {of} may spend ε {epsilon}" + (f" and δ {delta}" if delta != "0" else "")
            )
    if typed["delta_per_request"]:
        said.append(f"a question may spend δ {typed['delta_per_request']}")
    if typed["average_releases"]:
        said.append(f"at most {typed['average_releases']} sums of sites without noise")
    if airlock := airlock_of(answers):
        said.append(f"output checking (airlock) by {', '.join(airlock['reviewers'])}")
    return said


def airlock_of(answers: Answers) -> dict[str, Any]:  # Any: JSON of the wire
    """Return the terms of output checking, as on the card; {} if there are none."""
    try:
        found = json.loads(answers.get("airlock", "") or "{}")
    except ValueError:
        return {}
    is_card = isinstance(found, dict) and isinstance(found.get("reviewers"), list)
    return found if is_card else {}


def _kept(card: Shape) -> dict[str, str]:
    caps, averages = card["caps"], card.get("secure_average") or {}
    made = {
        f"{of}_{name}": _plain(caps[of][name])
        for of in ("user", "group")
        if caps[of] is not None
        for name in ("epsilon", "delta")
    }
    made |= {f"average_{name}": str(averages[name]) for name in averages}
    made |= {"two": "yes" if caps["raise"] == _TWO_PEOPLE else ""}
    made |= {"window": str(card.get("window") or "")}
    if card["delta_per_request"]:
        made["delta_per_request"] = _plain(card["delta_per_request"])
    if card.get("airlock"):
        made["airlock"] = json.dumps(card["airlock"])
    return made


def _plain(number: float) -> str:
    return str(int(number)) if number == int(number) else repr(number)
