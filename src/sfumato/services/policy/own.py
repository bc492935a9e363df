"""The look at whose data set it is; another's reads exactly like one that is not there."""

from __future__ import annotations

from sfumato.core.access import Caller
from sfumato.core.ports import Catalogue, Listing
from sfumato.core.refusal import Refused


def own_listing(catalogue: Catalogue, caller: Caller, data_set: str) -> Listing:
    """Return the caller's own data set, or refuse."""
    listing = catalogue.find(data_set) if caller.reaches(data_set) else None
    if listing is None or listing.owner != caller.user:
        raise Refused(
            "unknown-data-set",
            "You have brought no data set of that name.",
            "See your data sets; only who has added one decides about it.",
        )
    return listing


def check_words(*words: str) -> None:
    """Refuse a user or a group that is no name."""
    for word in words:
        if not 1 <= len(word) <= 100 or not word.isprintable() or "/" in word:
            raise Refused(
                "unknown-user",
                "A user or group is 1 to 100 printable letters without '/'.",
                "Choose another name.",
            )
