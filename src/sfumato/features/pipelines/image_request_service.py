"""The service of requests for images: researchers ask, and the operator decides.

A decision pulls nothing. Only whoever opens the vault's folder can pull an image.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from threading import Lock

from sfumato.dp.json_values import Json
from sfumato.dp.ports import RandomSource
from sfumato.dp.refusal import Refused
from sfumato.features.pipelines.image_request import (
    ACCEPTED,
    DECLINED,
    MAX_REASON,
    MAX_REQUESTS,
    MAX_REQUESTS_DAYS,
    MAX_WAITING,
    WAITING,
    ImageRequest,
    ImageRequestStore,
)
from sfumato.sandbox.image_registry import check_allowed, read_reference
from sfumato.vault.ports import Clock
from sfumato.vault.users import Caller


@dataclass(frozen=True)
class ImageRequests:
    """The service of one vault for requests for images."""

    store: ImageRequestStore
    clock: Clock
    dice: RandomSource
    brought: Callable[[], Sequence[str]]  # returns the names of this machine's environments
    registries: object = None  # the operator's list of the registries that are allowed
    asking: Lock = field(default_factory=Lock, repr=False, compare=False)

    def ask(self, caller: Caller, image: object, why: object) -> Json:
        """Store a request for an image of an allowed registry; or refuse.

        The same waiting or accepted request of a user is returned again.
        """
        reference = read_reference(image if isinstance(image, str) else "")
        check_allowed(reference, self.registries)
        named = f"{reference.name}@{reference.digest}"
        name, now = self.dice.draw(8).hex(), self.clock.now()
        made = ImageRequest(name, caller.user, named, _text(why), now)
        with self.asking:
            mine = [one for one in self.store.all() if one.by == caller.user]
            alike = [one for one in mine if one.image == named and one.state != DECLINED]
            if not alike:
                self._check_few(mine)
                self.store.add(made)
        return (alike[0] if alike else made).as_json(self.brought())

    def all(self, caller: Caller) -> Json:
        """Return all requests to an operator, and to anybody else their own."""
        is_operator, brought = caller.may("operate"), self.brought()
        found = [one for one in self.store.all() if is_operator or one.by == caller.user]
        return {"requests": [one.as_json(brought) for one in found]}

    def decide(self, caller: Caller, request: str, state: str, reason: object) -> Json:
        """Accept or decline a request; only for operators. Nothing is pulled."""
        found = next((one for one in self.store.all() if one.id == request), None)
        if found is None:
            raise Refused(
                "bad-request",
                "There is no request for an image with this id.",
                "Take the id from the list of requests.",
            )
        made = replace(
            found, state=ACCEPTED if state == ACCEPTED else DECLINED, decided_by=caller.user,
            decided_at=self.clock.now(), reason=_text(reason),
        )  # fmt: skip
        self.store.decide(made)
        return made.as_json(self.brought())

    def _check_few(self, mine: Sequence[ImageRequest]) -> None:
        """Refuse a person's further request: by those that wait, and by all of the last days."""
        waiting = sum(one.state == WAITING for one in mine)
        since = datetime.fromisoformat(self.clock.now()) - timedelta(days=MAX_REQUESTS_DAYS)
        recent = [one.at for one in mine if datetime.fromisoformat(one.at) > since]
        if waiting >= MAX_WAITING:
            raise Refused(
                "too-many",
                f"You have {waiting} waiting requests for images, which is the maximum.",
                "Wait until the operator has decided on one of them.",
            )
        if len(recent) >= MAX_REQUESTS:
            raise Refused(
                "too-many",
                f"You have asked for {len(recent)} images in the last {MAX_REQUESTS_DAYS} days. "
                f"The maximum is {MAX_REQUESTS}, whatever the operator decided.",
                f"Ask again when the oldest of these requests is {MAX_REQUESTS_DAYS} days old.",
            )


def _text(said: object) -> str:
    text = "" if said is None else said
    is_short = isinstance(text, str) and len(text) <= MAX_REASON
    if not isinstance(text, str) or not is_short or not text.replace("\n", "").isprintable():
        raise Refused(
            "bad-request",
            f"A reason has at most {MAX_REASON:,} letters, and no control letters.",
            "Shorten the reason.",
        )
    return text.strip()
