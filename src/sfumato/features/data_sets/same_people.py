"""Confirmations that two data sets are about different people, and the refusal without one.

A second person confirms with `--different-people` that no other data set is about the people of a
new one. The ledger keeps that in the signature of the card. The confirmation covers every data set
of other people that was signed before. It stays valid while nothing has changed: later versions
with the same rows and the same files need no other confirmation. See `person_sketch.NewSketch`,
which compares the rows, and `test_same_people.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from sfumato.dp.refusal import Refused
from sfumato.vault.card.data_card import Card
from sfumato.vault.ports import Catalogue, LedgerStore


@dataclass(frozen=True)
class _Signed:
    """A signed card: data set, version, people domain, and who confirmed that they are new."""

    name: str
    version: str
    people: str
    by: str | None


def confirmed_pairs(
    card: Card, ledger: LedgerStore, catalogue: Catalogue, owner: str
) -> tuple[tuple[str, str, str], ...]:
    """Return which earlier rows of a card's data set are confirmed to be about other people.

    Args:
        card: The new card.
        ledger: The ledger, with the signed cards.
        catalogue: The catalogue, which names the sketch of each version.
        owner: The owner of the data set. Only their own data sets are compared.

    Returns:
        The other people domain, the sketch of the earlier version, and the sketch of the others.
    """
    own = {path for _, path in catalogue.people(owner)}
    versions = zip(catalogue.cards(), catalogue.people(), strict=True)
    sketches = {(c.name, c.version): path for c, (_, path) in versions if path in own}
    found: dict[tuple[str, str, str], None] = {}
    for one, other in _confirmed(ledger):
        for mine, theirs in ((one, other), (other, one)):
            pair = [sketches.get((signed.name, signed.version)) for signed in (mine, theirs)]
            if mine.name == card.name and mine.people == card.people and None not in pair:
                found[theirs.people, str(pair[0]), str(pair[1])] = None
    return tuple(found)


def _confirmed(ledger: LedgerStore) -> Iterator[tuple[_Signed, _Signed]]:
    """Yield each pair of signed cards whose people a second person has confirmed as different."""
    before: list[_Signed] = []
    for entry in ledger.entries():
        if entry.kind != "card-signed":
            continue
        body = json.loads(entry.body)
        said = body["card"]
        signed = _Signed(
            said["name"], said["version"], said["people"], body.get("different_people")
        )
        if signed.by is not None:
            yield from ((signed, other) for other in before if other.people != signed.people)
        before.append(signed)


def same_people(same: tuple[str, ...], catalogue: Catalogue, owner: str) -> Refused:
    """Return the refusal of rows that seem to be about people who already have a budget."""
    listings = [catalogue.find(name) for name in catalogue.names()]
    names = [
        repr(found.card.name)
        for found in listings
        if found is not None and found.owner == owner and found.card.people == same[0]
    ]
    return Refused(
        "same-people",
        f"These rows seem to belong to the people {same[0]!r}, who already have a budget"
        + (f" (data set {', '.join(names)})" if names else "")
        + ". Data sets that number their people alike (sub-01, sub-02, ...) also seem to have "
        "the same people.",
        f'If they are the same people, put people = "{same[0]}" on the data card, so that they '
        "share one budget. If they are other people, ask a colleague who knows both data sets to "
        "confirm that, and add --different-people NAME (the colleague's name; on a service, their "
        "user name). Later versions with the same rows and files need no other confirmation.",
        people=list(same),
    )
