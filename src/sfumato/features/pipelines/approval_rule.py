"""Approval rules, by which an owner approves in advance all programs that match.

An owner can end a rule, but not edit it. A rule does not apply to programs submitted before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol, Self

from sfumato.dp.budget import read_delta, read_epsilon
from sfumato.dp.json_values import Json
from sfumato.dp.refusal import Refused
from sfumato.sandbox.block_columns import listed_column
from sfumato.sandbox.program_outputs import Output, bound_of
from sfumato.vault.card.data_card import Card
from sfumato.vault.card.field_readers import as_table, as_texts

MAX_NAMES = 200


def bad_rule(cause: str) -> Refused:
    """Return the refusal of a rule that cannot be read or set."""
    return Refused(
        "bad-pipeline", f"The rule is not valid: {cause}.", "Correct the rule, and set it again."
    )


@dataclass(frozen=True)
class Range:
    """An output of a program that a rule allows, with the widest range that it may declare."""

    name: str
    lower: Fraction
    upper: Fraction


@dataclass(frozen=True)
class Rule:
    """An approval rule: the users, columns and outputs that it allows, and its epsilon limits."""

    id: str
    data_set: str
    users: tuple[str, ...]
    groups: tuple[str, ...]
    columns: tuple[str, ...]
    outputs: tuple[Range, ...]
    most_epsilon: Fraction  # the largest epsilon of one run
    most_total: Fraction  # the largest epsilon of all runs under the rule together
    most_delta: Fraction = Fraction(0)  # the largest delta of one run
    texts: tuple[str, ...] = ()  # SHA-256 of the allowed program texts; empty allows any text
    takes_files: bool = False  # also allows programs that see the files in people's folders
    by: str = ""
    at: str = ""
    ended_at: str = ""

    @property
    def is_over(self) -> bool:
        """Return True if the owner has ended the rule.

        An ended rule approves no program and allows no run.
        """
        return self.ended_at != ""

    def as_json(self) -> Json:
        """Return the rule as JSON with exact numbers, for the ledger and the users it names."""
        return {
            "rule": self.id,
            "data_set": self.data_set,
            "users": list(self.users),
            "groups": list(self.groups),
            "columns": list(self.columns),
            "outputs": [[one.name, str(one.lower), str(one.upper)] for one in self.outputs],
            "most_epsilon": str(self.most_epsilon),
            "most_total": str(self.most_total),
            "most_delta": str(self.most_delta),
            "texts": list(self.texts),
            "takes_files": self.takes_files,
            "by": self.by,
            "at": self.at,
            "ended_at": self.ended_at,
        }

    @classmethod
    def of_json(cls, said: Any) -> Self:  # Any: what `as_json` has made
        """Parse a rule from the JSON that `as_json` returned and the store kept."""
        return cls(
            id=said["rule"],
            data_set=said["data_set"],
            users=tuple(said["users"]),
            groups=tuple(said["groups"]),
            columns=tuple(said["columns"]),
            outputs=tuple(Range(n, Fraction(low), Fraction(up)) for n, low, up in said["outputs"]),
            most_epsilon=Fraction(said["most_epsilon"]),
            most_total=Fraction(said["most_total"]),
            most_delta=Fraction(said["most_delta"]),
            texts=tuple(said["texts"]),
            takes_files=said["takes_files"],
            by=said["by"],
            at=said["at"],
            ended_at=said["ended_at"],
        )


@dataclass(frozen=True)
class HandedIn:
    """What an approval rule checks of a submitted program (handed in) and of its author."""

    user: str
    groups: tuple[str, ...]
    text: str  # SHA-256 of the program's text
    columns: tuple[str, ...]
    outputs: tuple[Output, ...]
    sees_files: bool


@dataclass(frozen=True)
class Spending:
    """The epsilon that one run reserves or spends under an approval rule.

    A repetition of the same run does not count again.

    Until the run has an answer, the epsilon is reserved for one asker. Another asker of the same
    run needs a reservation of their own.
    """

    rule: str
    run: str
    epsilon: Fraction
    by: str = ""  # hash of the asker who holds the reservation; empty once the run has its answer

    @property
    def reservation_key(self) -> str:
        """Return the key under which this run's epsilon is stored as reserved or spent."""
        return f"{self.run}:{self.by}" if self.by else self.run


class RuleStore(Protocol):
    """A store of rules and of their spent epsilon; a change is durable when its call returns."""

    def add(self, rule: Rule) -> None:
        """Store a new approval rule."""
        ...

    def find(self, data_set: str, rule: str) -> Rule | None:
        """Return the data set's approval rule of this id, or None."""
        ...

    def of(self, data_set: str) -> tuple[Rule, ...]:
        """Return all approval rules of a data set, the oldest first."""
        ...

    def end(self, rule: Rule) -> None:
        """Store that the owner has ended the approval rule."""
        ...

    def spent(self, rule: str) -> Fraction:
        """Return the total epsilon that runs have reserved or spent under the rule."""
        ...

    def reserve(self, spending: Spending, most: Fraction) -> bool | None:
        """Reserve a run's epsilon under a rule, if the rule's total stays within `most`.

        Returns True if the epsilon is reserved now. Returns False if the run has its answer, or the
        asker already has the reservation. Returns None if too little epsilon is left.
        """
        ...

    def spend(self, spending: Spending, key: str) -> None:
        """Record a run's reserved epsilon as spent, under `key`; a second call adds nothing."""
        ...

    def cancel(self, spending: Spending) -> None:
        """Cancel a run's reservation of epsilon, because its asker was never charged."""
        ...


def misfit(rule: Rule, one: HandedIn) -> str | None:
    """Return why a program does not match an approval rule, or None if it matches.

    A rule allows only what it lists.
    """
    if rule.is_over:
        return "the rule is over"
    if one.user not in rule.users and not set(one.groups) & set(rule.groups):
        return "it does not name this user"
    if rule.texts and one.text not in rule.texts:
        return "it approves other programs"
    if one.sees_files and not rule.takes_files:
        return "it does not let programs see people's files"
    if not _folded(one.columns) <= _folded(rule.columns):
        return "the program reads a column that the rule does not list"
    return _wide_output(rule, one.outputs)


def _folded(names: Sequence[str]) -> set[str]:
    return {name.casefold() for name in names}


def _wide_output(rule: Rule, outputs: Sequence[Output]) -> str | None:
    ranges = {one.name: one for one in rule.outputs}
    for output in outputs:
        within = ranges.get(output.name)
        if within is None:
            return f"it has no output {output.name!r}"
        if output.lower < within.lower or output.upper > within.upper:
            return f"it allows a narrower range of output {output.name!r}"
    return None


# --- parsing --------------------------------------------------------------------------------------

_KEYS = {
    "users", "groups", "columns", "outputs", "most_epsilon", "most_total", "most_delta", "texts",
    "takes_files",
}  # fmt: skip


def read_rule(card: Card, shape: object, made: tuple[str, str, str]) -> Rule:
    """Parse an owner's approval rule; refuse an invalid one.

    `made` is the rule's id, its owner and its time.
    """
    body = as_table(shape, "rule", _KEYS)
    users, groups, columns, texts = (
        _names(body.get(key, []), key) for key in ("users", "groups", "columns", "texts")
    )
    if not users and not groups:
        raise bad_rule("a rule must name users or groups")
    if not set(groups) <= set(card.who):
        raise bad_rule("a rule's groups must be groups that the data card allows to ask")
    if not columns:
        raise bad_rule("a rule must list the columns that programs may read")
    if any(len(text) != 64 or not set(text) <= set("0123456789abcdef") for text in texts):
        raise bad_rule("texts must be SHA-256 sums of program texts")
    takes_files = body.get("takes_files", False)
    if not isinstance(takes_files, bool):
        raise bad_rule("takes_files must be true or false")
    most, total = (read_epsilon(body.get(key), key) for key in ("most_epsilon", "most_total"))
    if total < most:
        raise bad_rule("most_total is less than most_epsilon")
    rule, by, at = made
    return Rule(
        id=rule,
        data_set=card.name,
        users=users,
        groups=groups,
        columns=tuple(listed_column(card, name) for name in columns),
        outputs=_ranges(body.get("outputs")),
        most_epsilon=most,
        most_total=total,
        most_delta=read_delta(body.get("most_delta", 0), "most_delta"),
        texts=texts,
        takes_files=takes_files,
        by=by,
        at=at,
    )


def _names(shape: object, key: str) -> tuple[str, ...]:
    names = as_texts(shape, key)
    if len(names) > MAX_NAMES or not all(0 < len(n) <= 100 and n.isprintable() for n in names):
        raise bad_rule(f"{key} must be a list of up to {MAX_NAMES} names")
    return names


def _ranges(shape: object) -> tuple[Range, ...]:
    if not isinstance(shape, list) or not 1 <= len(shape) <= MAX_NAMES:
        raise bad_rule("a rule's outputs must be a list of name, lower and upper")
    ranges = tuple(_range(one) for one in shape)
    if len({one.name for one in ranges}) < len(ranges):
        raise bad_rule("two outputs of a rule have the same name")
    return ranges


def _range(shape: object) -> Range:
    if not isinstance(shape, dict) or set(shape) != {"name", "lower", "upper"}:
        raise bad_rule("an output of a rule must have name, lower and upper")
    name = shape["name"]
    if not isinstance(name, str) or not name.isidentifier() or len(name) > 63:
        raise bad_rule(
            "an output's name may have letters, digits and _, and must not begin with a digit"
        )
    lower, upper = (bound_of(shape[end], name, end) for end in ("lower", "upper"))
    if lower >= upper:
        raise bad_rule(f"lower of output {name!r} is not below its upper")
    return Range(name, lower, upper)


def beyond(rule: Rule, epsilon: Fraction, delta: Fraction) -> Refused | None:
    """Return a refusal if a run is beyond its approval rule: ended, or epsilon or delta too large.

    Return None if the rule allows the run.
    """
    if rule.is_over:
        why = "The rule that approved the program has ended."
    elif epsilon > rule.most_epsilon or delta > rule.most_delta:
        why = (
            "The rule that approved the program allows a run epsilon "
            f"{float(rule.most_epsilon):g} and delta {float(rule.most_delta):g}."
        )
    else:
        return None
    return Refused("pipeline-waits", why, "Ask the owner to approve the program directly.")
