"""Permission checks that all services share: who may query a data set, and whether it is frozen."""

from __future__ import annotations

from collections.abc import Sequence

from sfumato.dp.refusal import Refused
from sfumato.query.model import Query
from sfumato.query.query_from_json import read_query
from sfumato.vault.card.data_card import Card
from sfumato.vault.ports import Catalogue, Listing
from sfumato.vault.users import Caller


def listing_to_query(
    catalogue: Catalogue, caller: Caller, data_set: str
) -> tuple[Listing, tuple[str, ...]]:
    """Return a data set that the caller may query, with the groups that permit it; or refuse."""
    found = catalogue.find(data_set) if caller.reaches(data_set) else None
    if found is not None and caller.user.isprintable():
        groups = catalogue.groups_of(caller.user, found.card.name)
        shared = groups_that_ask(found, caller.user, groups)
        if shared is not None:
            return found, shared
    raise no_data_set(data_set, caller.user)


def own_listing(catalogue: Catalogue, caller: Caller, data_set: str) -> Listing:
    """Return a data set that the caller owns; or refuse.

    The refusal is the same for another owner's data set and for a missing one.
    """
    listing = catalogue.find(data_set) if caller.reaches(data_set) else None
    if listing is None or listing.owner != caller.user:
        raise Refused(
            "unknown-data-set",
            "You have added no data set of that name.",
            "Check the name. Only the owner who added a data set can change it.",
        )
    return listing


def groups_that_ask(listing: Listing, user: str, groups: Sequence[str]) -> tuple[str, ...] | None:
    """Return the user's groups that the card permits to query; None if the user may not query.

    The owner of the data set may always query.
    """
    shared = tuple(group for group in groups if group in listing.card.who)
    return shared if user == listing.owner or listing.card.lets_ask(shared) else None


def no_data_set(data_set: str, user: str) -> Refused:
    """Return the refusal of a data set that the user may not query, or that doesn't exist.

    The text is the same in both cases, so it doesn't reveal which data sets exist.
    """
    return Refused(
        "unknown-data-set",
        f"There is no data set {data_set!r} that {user!r} may ask.",
        "See what there is with `sfumato datasets`, or ask the owner to enrol you.",
    )


def check_not_frozen(catalogue: Catalogue, listing: Listing, user: str) -> None:
    """Refuse a query while the owner has frozen (blocked) the data set."""
    if catalogue.is_frozen(listing.card.name):
        raise data_set_frozen(listing, user)


def data_set_frozen(listing: Listing, user: str) -> Refused:
    """Return the refusal of a query to a frozen (blocked) data set; it applies to the owner too."""
    name, whose, then = (
        listing.card.name,
        "The owner has",
        ("Wait until the owner allows questions again, or ask them to."),
    )
    if user == listing.owner:
        whose, then = "You have", "Thaw it first."
    return Refused(
        "data-set-frozen",
        f"{whose} frozen {name!r}, so it answers no questions. A question that is refused for "
        "this costs nothing.",
        then,
    )


def question_of(card: Card, shape: object) -> Query:
    """Read a question from JSON; refuse if it names another data set than the card's."""
    question = read_query(shape)
    if question.data_set.casefold() != card.name.casefold():
        raise Refused(
            "not-in-language",
            f"The question was built for another data set than {card.name}.",
            f"Build the question from the data set {card.name!r}.",
        )
    return question


def card_of_version(catalogue: Catalogue, name: str, version: str) -> Card | None:
    """Return the data card of one version of a data set, or None if that version doesn't exist."""
    found = (one for one in catalogue.cards_of(name) if (one.name, one.version) == (name, version))
    return next(found, None)
