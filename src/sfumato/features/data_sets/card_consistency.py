"""Check a new data card against signed ones: names, people, privacy units, windows, caps."""

from __future__ import annotations

from sfumato.dp.accounting.privacy_filter import cap_from_budget, is_raised
from sfumato.dp.budget import Budget
from sfumato.dp.refusal import Refused
from sfumato.vault.card.data_card import Card
from sfumato.vault.card.secure_average_terms import AverageTerms


def check_against_signed(card: Card, signed: Card) -> None:
    """Refuse a new data card that contradicts a signed card of the vault."""
    if card.name.casefold() == signed.name.casefold():
        if card.name != signed.name:
            raise Refused(
                "data-set-exists",
                f"There is already a data set {signed.name!r}, and names that differ only in "
                "letter case are the same.",
                f"For a new version of it, write the name as {signed.name!r}. Otherwise, choose "
                "another name.",
            )
        if card.version == signed.version:
            raise Refused(
                "data-set-exists",
                f"The data set {card.name!r} already has, or had, a version {card.version!r}.",
                "Write a new version on the data card. What was spent of the budget stays spent.",
            )
        if card.people != signed.people:
            raise Refused(
                "same-people",
                f"The earlier data card of {card.name!r} names its people {signed.people!r}, and "
                "this card names others.",
                f'Write people = "{signed.people}" on the card.',
            )
        if card.unit.casefold() != signed.unit.casefold():
            raise Refused(
                "bad-card",
                f"The earlier data card of {card.name!r} has the privacy unit {signed.unit!r}, "
                "and this card has another.",
                "Keep the unit. Another unit would protect people differently than promised.",
            )
        _check_tables(card, signed)
    if card.people != signed.people and card.people.casefold() == signed.people.casefold():
        raise Refused(
            "same-people",
            f"There are already people named {signed.people!r}, and names that differ only in "
            "letter case are the same.",
            "If the people are the same, spell people on the data card like this. Otherwise, "
            "choose another name.",
        )
    if card.people == signed.people:
        _check_window(card, signed)
    if card.people == signed.people and card.by_person != signed.by_person:
        raise Refused(
            "bad-card",
            f"The budget of the people {card.people!r} is counted by "
            + ("person" if signed.by_person else "row")
            + f" (see {signed.name!r}), and this card's unit is another.",
            "Use the same unit, or give these people another name.",
        )


def _check_window(card: Card, signed: Card) -> None:
    """Refuse a data card that changes the people's budget window, or raises a windowed budget.

    A raise would apply to every later window, because each opens with the card's budget.
    """
    if card.window != signed.window:
        raise Refused(
            "bad-card",
            f"The budget of the people {card.people!r} is "
            + (f"for each {signed.window}" if signed.window else "for ever")
            + f" (see {signed.name!r}).",
            f'Write window = "{signed.window}".' if signed.window else "Take window off the card.",
        )
    if card.window is not None and is_raised(
        cap_from_budget(signed.budget), cap_from_budget(card.budget)
    ):
        raise Refused(
            "bad-card",
            f"The data card of {signed.name!r} promises the people {card.people!r} a smaller "
            f"budget in each {card.window}.",
            f"Give the card a budget of epsilon {float(signed.budget.epsilon):g} at most.",
        )


def check_raise(card: Card, current: Card) -> None:
    """Refuse a new card version that raises a cap, if the current card asks for two people.

    Also refuse if the new version drops that condition, or allows more sums without noise.
    """
    if not current.raised_by_two:
        return
    if not card.raised_by_two:
        raise Refused(
            "not-allowed",
            f"The data card of {card.name!r} promises that raising its caps takes two people.",
            'Keep raise = "two people" under [caps].',
        )
    if any(_is_more(new, old) for old, new in zip(_caps(current), _caps(card), strict=True)):
        raise Refused(
            "not-allowed",
            f"A new version of {card.name!r} cannot raise a cap: that takes a second person.",
            "Keep its budget and [caps], or lower them. Then ask for single caps to be raised.",
        )
    if _lets_more(card.averages, current.averages):
        raise Refused(
            "not-allowed",
            f"A new version of {card.name!r} cannot allow more sums without noise, because two "
            "people raise its caps.",
            "Keep secure_average as it is, lower its releases, or raise its sites.",
        )


def _lets_more(new: AverageTerms | None, old: AverageTerms | None) -> bool:
    """Return True if a new card allows more sums without noise, or such sums over fewer sites."""
    if new is None or old is None:
        return new is not None
    return new.releases > old.releases or new.sites < old.sites


def _caps(card: Card) -> tuple[Budget | None, ...]:
    return card.budget, card.user_cap or card.budget, card.group_cap


def _is_more(new: Budget | None, old: Budget | None) -> bool:
    """Return True if a cap was raised or removed; a cap of None means that there is no limit."""
    if new is None or old is None:
        return new is None and old is not None
    return is_raised(cap_from_budget(old), cap_from_budget(new))


def _check_tables(card: Card, signed: Card) -> None:
    """Refuse a card whose table becomes public or private, or changes its privacy unit."""
    before = {table.name.casefold(): table for table in signed.tables}
    for table in card.tables:
        known = before.get(table.name.casefold())
        if known is None:
            continue
        of = [(t.unit or "").casefold() for t in (table, known)]
        if table.is_public != known.is_public or of[0] != of[1]:
            raise Refused(
                "bad-card",
                f"The rows of table {known.name!r} were "
                + ("public." if known.is_public else f"those of {known.unit!r}."),
                "Keep the unit, or give the table another name. Another unit would protect "
                "people differently than promised.",
            )
