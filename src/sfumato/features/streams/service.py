"""The service of streams: owners open and close them, users with access read them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from sfumato.dp.budget import read_epsilon
from sfumato.dp.json_values import Json
from sfumato.dp.refusal import Refused
from sfumato.features.streams.release import (
    StreamDoor,
    close_periods,
    find_stream,
    open_stream,
    stream_answer,
)
from sfumato.features.streams.schema import OpenStream
from sfumato.features.streams.stream_plan import Terms, bound_in_words, make_stream
from sfumato.query.model import Query
from sfumato.query.sql.select import read_sql
from sfumato.release.permissions import check_not_frozen, listing_to_query, question_of
from sfumato.vault.card.columns import read_constant
from sfumato.vault.card.data_card import Card
from sfumato.vault.ports import Catalogue, Clock, Listing
from sfumato.vault.users import Caller


@dataclass(frozen=True)
class Streams:
    """Service that opens, closes and shows the streams (continual counts) of one vault."""

    door: StreamDoor
    catalogue: Catalogue
    clock: Clock

    def open(self, caller: Caller, opening: OpenStream) -> Json:
        """Open a stream: fix its terms, charge the whole price; the same terms again are free."""
        listing = self._own(caller, opening.data_set)
        card = listing.card
        check_not_frozen(self.catalogue, listing, caller.user)
        terms = Terms(
            opening.stream,
            opening.start,
            opening.periods,
            opening.rows,
            read_epsilon(opening.epsilon),
        )
        stream = make_stream(card, _question(card, opening), terms)
        found = open_stream(self.door.ledger, card, stream, caller.user)
        return {
            "stream": stream.name,
            "data_set": card.name,
            "says": found.says,
            "epsilon": float(stream.epsilon),
            "periods": stream.periods,
            "unit": stream.unit,
            "bounding": bound_in_words(stream),
            "error": {"first": stream.running.margins()[0], "worst": stream.running.margin()},
            "last": stream.day(stream.periods),
        }

    def close(self, caller: Caller, data_set: str, name: str, until: str) -> Json:
        """Close every open period that is over by the day `until`, in order, each once."""
        listing = self._own(caller, data_set)
        found = find_stream(self.door.ledger, listing.owner, listing.card.name, name)
        if found is None:
            raise _unknown(name, data_set)
        stream = found.stream
        wanted = stream.ends_by(until)
        self._check_begun(until)
        may_still = partial(check_not_frozen, self.catalogue, listing, caller.user)
        closed = close_periods(self.door, listing, found, wanted, may_still=may_still)
        return {
            "stream": stream.name,
            "data_set": listing.card.name,
            "closed_now": closed,
            "closed": wanted,
            "of": stream.periods,
            "last": stream.day(wanted),
            "version": listing.card.version,
        }

    def show(self, caller: Caller, data_set: str, name: str) -> Json:
        """Return the running counts of all closed periods; free for the data set's users."""
        listing = self._listing(caller, data_set)
        found = find_stream(self.door.ledger, listing.owner, listing.card.name, name)
        if found is None:
            raise _unknown(name, data_set)
        return stream_answer(self.door.ledger, listing.card, found)

    def _check_begun(self, until: str) -> None:
        """Refuse a day in the future, because rows that come after a period is closed never count.

        The current day is allowed, because time zones differ by half a day.
        """
        today = self.clock.now()[:10]
        if read_constant("date", until, "until").text > today:
            raise Refused(
                "stream-out-of-order",
                f"The period of {until} cannot be closed, because this day is in the future. "
                f"Today is {today}.",
                "Close a period when it is over. Rows that come later are never counted.",
            )

    def _own(self, caller: Caller, data_set: str) -> Listing:
        """Return the caller's own data set; refuse others, because the opener pays."""
        listing = self._listing(caller, data_set)
        if listing.owner != caller.user:
            raise Refused(
                "not-allowed",
                "Only the data set's owner opens and closes a stream.",
                "Ask the data set's owner to do it.",
            )
        return listing

    def _listing(self, caller: Caller, data_set: str) -> Listing:
        """Return a data set that the caller owns or may query; or refuse."""
        return listing_to_query(self.catalogue, caller, data_set)[0]


def _question(card: Card, opening: OpenStream) -> Query:
    if opening.sql is not None:
        return read_sql(opening.sql, card.name)
    return question_of(card, opening.question)


def _unknown(name: str, data_set: str) -> Refused:
    return Refused(
        "stream-unknown",
        f"The data set {data_set!r} has no stream {name!r}.",
        "The owner opens one with `sfumato stream open`.",
    )
