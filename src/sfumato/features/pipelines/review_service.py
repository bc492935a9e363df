"""The review service: what an owner and an author see of a program, and what a decision records."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sfumato.dp.json_values import Json
from sfumato.dp.refusal import Refused
from sfumato.features.pipelines.model import Submitted
from sfumato.features.pipelines.program_plan import read_program
from sfumato.features.pipelines.program_review import (
    KeptTrial,
    Review,
    ReviewStore,
    approved_before,
    asked_of,
    changes_json,
    check_tried,
    environment_changes,
    environment_lines,
    missing_words,
    title_in,
)
from sfumato.sandbox.ports import BATCH, ISOLATED, Sandbox
from sfumato.sandbox.program_environment import OwnEnvironment, own_of
from sfumato.vault.card.data_card import Card
from sfumato.vault.ports import Clock


@dataclass(frozen=True)
class ProgramReviews:
    """The service of one vault that records reviews and trials, and shows them."""

    store: ReviewStore
    clock: Clock
    environment: Callable[[str], OwnEnvironment | None]  # a program environment of this machine

    def record(self, made: Submitted, checked: tuple[str, ...], reason: str) -> None:
        """Store what the owner confirmed and wrote with a decision."""
        if checked or reason:
            self.store.add(Review(made.data_set, made.digest, made.decided_at, checked, reason))

    def keep_trial(self, found: Submitted, by: str, plan: Json) -> None:
        """Store a trial by an author of the program or by the owner, for both of them to see."""
        now = self.clock.now()
        kept = KeptTrial(found.data_set, found.trials_of(by), by, now, json.dumps(plan))
        self.store.keep_trial(kept, by if by in found.authors else found.by)

    def trials(self, found: Submitted, users: Sequence[str]) -> list[KeptTrial]:
        """Return the kept trials of the program by these users, the last one first."""
        kept = [self.store.trial(found.data_set, found.trials_of(user)) for user in users]
        return sorted((one for one in kept if one), key=lambda one: one.at, reverse=True)

    def last_plan(self, found: Submitted, users: Sequence[str]) -> Json | None:
        """Return the plan of the last recorded trial by these users, or None."""
        kept = self.trials(found, users)
        return json.loads(kept[0].plan) if kept else None

    def missing(self, found: Submitted) -> list[str]:
        """Return a warning if the environment that a program brings is not on this machine."""
        own = _own(found)
        return [missing_words(own)] if own and self.environment(own) is None else []

    def reason(self, found: Submitted) -> str:
        """Return what the owner wrote with the last decision; only author and owner may see it."""
        known = self.store.of(found.data_set).get((found.digest, found.decided_at))
        return "" if known is None else " ".join(known.reason.split())

    def check(self, found: Submitted, checked: Sequence[str], users: Sequence[str]) -> None:
        """Refuse an approval that confirms a trial which is not on record of any of the users."""
        check_tried(checked, is_tried=bool(self.trials(found, users)))

    def shown(self, card: Card, sandbox: Sandbox, found: Sequence[Submitted]) -> list[Json]:
        """Return programs of a data set as JSON, with their reviews and whether they can run."""
        known = self.store.of(card.name)
        return [
            {
                **_shown(one, known.get((one.digest, one.decided_at))),
                "is_current": _is_current(card, sandbox, one),
                "is_here": not self.missing(one),
            }
            for one in found
        ]

    def detail(self, found: Submitted, known: Sequence[Submitted], kept: KeptTrial | None) -> Json:
        """Return what a review of the program needs: changes, last trial, checklist."""
        before = approved_before(found, known)
        facts = self._facts(_own(found))
        return {
            "changes": None if before is None else self._changes(before, found),
            "trial": None
            if kept is None
            else {"by": kept.by, "at": kept.at, "plan": json.loads(kept.plan)},
            "environment_facts": {**facts, "lines": environment_lines(facts)} if facts else None,
            "checklist": [
                {"id": name, "asks": asks}
                for name, asks in asked_of(is_tried=kept is not None).items()
            ],
        }

    def about(self, own: str) -> list[str]:
        """Return what this machine knows of a program environment, as lines; [] if nothing."""
        facts = self._facts(own)
        return environment_lines(facts) if facts else []

    def _changes(self, before: Submitted, now: Submitted) -> Json:
        """Return what has changed since another program, also in the environment it brings."""
        old, new = _own(before), _own(now)
        changes = changes_json(before, now)
        if old == new:
            return changes
        return {**changes, "environment": environment_changes(self._facts(old), self._facts(new))}

    def _facts(self, own: str) -> Json | None:
        """Return what this machine knows of a program's own environment; None if it is not here.

        A program without an environment of its own has no facts. Labels, user and settings are what
        an image says about itself; nobody has checked them.
        """
        if not own:
            return {}
        known = self.environment(own)
        if known is None:
            return None
        return {
            "megabytes": known.megabytes,
            "note": known.said,
            "entry": list(map(_sendable, known.entry)),
            "settings": list(map(_sendable, known.settings)),
            "folder": _sendable(known.folder),
            "user": _sendable(known.user),
            "labels": {_sendable(key): _sendable(one) for key, one in known.labels},
            "source": known.source,
            "manifest": known.manifest,
        }


def submitted_json(one: Submitted) -> Json:
    """Return a submitted program as JSON, with its state."""
    program: dict[str, Any] = json.loads(one.program)  # Any: JSON of our own store
    return {
        "digest": one.digest,
        "data_set": one.data_set,
        "by": one.by,
        "authors": list(one.authors),
        "at": one.at,
        "state": one.state,
        "most_epsilon": float(one.most_epsilon),
        "decided_by": one.decided_by,
        "decided_at": one.decided_at,
        "timing": BATCH if one.may_batch else ISOLATED,
        "title": title_in(program),
        **program,
    }


def _own(one: Submitted) -> str:
    """Return the name of the environment that a program brings, or an empty text."""
    return own_of(json.loads(one.program)["environment"])


def _sendable(text: str) -> str:
    """Return a text of an image without what UTF-8 cannot write: half of a pair of surrogates."""
    return text.encode("utf-8", "replace").decode()


def _shown(one: Submitted, review: Review | None) -> Json:
    checked = [] if review is None else list(review.checked)
    reason = "" if review is None else review.reason
    return {**submitted_json(one), "checked": checked, "reason": reason}


def _is_current(card: Card, sandbox: Sandbox, one: Submitted) -> bool:
    """Return True if the program, with today's libraries and card, is the one submitted."""
    said = json.loads(one.program)
    try:
        here = sandbox.environment(own_of(said["environment"]))
        return read_program(card, said, here).digest == one.digest
    except Refused:
        return False
