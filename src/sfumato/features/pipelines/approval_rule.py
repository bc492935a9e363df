"""A rule by which an owner's word is given beforehand: programs that fit it wait for nobody.

A rule never changes: another rule is another one, and what was handed in before it waits as it did.
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
from sfumato.sandbox.program_outputs import Output, bad_pipeline, bound_of
from sfumato.vault.card.data_card import Card
from sfumato.vault.card.field_readers import as_table, as_texts

MOST_NAMES = 200


@dataclass(frozen=True)
class Range:
    """An output that a rule lets programs have, and the widest range of it."""

    name: str
    lower: Fraction
    upper: Fraction


@dataclass(frozen=True)
class Rule:
    """Whose programs on which columns are approved by themselves, and up to which price."""

    id: str
    data_set: str
    users: tuple[str, ...]
    groups: tuple[str, ...]
    columns: tuple[str, ...]
    outputs: tuple[Range, ...]
    most_epsilon: Fraction  # of a run
    most_total: Fraction  # of all runs that the rule lets happen together
    most_delta: Fraction = Fraction(0)  # of a run
    texts: tuple[str, ...] = ()  # SHA-256 of the program texts that it is about; none: of any
    takes_files: bool = False  # programs that see the files in people's folders too
    by: str = ""
    at: str = ""
    ended_at: str = ""

    @property
    def is_over(self) -> bool:
        """Say whether its owner has ended it: it approves nothing, and lets nothing run."""
        return self.ended_at != ""

    def as_json(self) -> Json:
        """Return it as the ledger and everybody whom it names see it; exact."""
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
        """Return the rule that was kept."""
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
    """What a rule looks at of a program, and of whoever hands it in."""

    user: str
    groups: tuple[str, ...]
    text: str  # SHA-256
    columns: tuple[str, ...]
    outputs: tuple[Output, ...]
    sees_files: bool


@dataclass(frozen=True)
class Spending:
    """One run's part of what a rule lets be spent: the same run again is the same part.

    Until it has an answer, the part is its asker's own: what is not paid by one, another may pay.
    """

    rule: str
    run: str
    epsilon: Fraction
    by: str = ""  # who holds it until the run has its answer

    @property
    def held(self) -> str:
        """Return the key that the part stands under as long as it is held."""
        return f"{self.run}:{self.by}" if self.by else self.run


class RuleStore(Protocol):
    """The rules of a vault, and what runs have taken of them; durable when it returns."""

    def add(self, rule: Rule) -> None:
        """Remember a rule."""
        ...

    def find(self, data_set: str, rule: str) -> Rule | None:
        """Return one by its id, or None."""
        ...

    def of(self, data_set: str) -> tuple[Rule, ...]:
        """Return every rule of a data set, the oldest first."""
        ...

    def end(self, rule: Rule) -> None:
        """Put down that it is over."""
        ...

    def spent(self, rule: str) -> Fraction:
        """Return what runs have taken of it."""
        ...

    def take(self, spending: Spending, most: Fraction) -> bool | None:
        """Let a run take its part, if all together stay within `most`.

        True says that it was taken now, False that the same run has its answer or its asker the
        part already, None that there is no room.
        """
        ...

    def keep(self, spending: Spending, key: str) -> None:
        """Let the part stand under that key for good, once; nobody holds it any more."""
        ...

    def give_back(self, spending: Spending) -> None:
        """Undo the taking of a part that is held: its asker was never charged."""
        ...


def misfit(rule: Rule, one: HandedIn) -> str | None:
    """Return why a program does not fit the rule, or None if it does; what is not said, is not."""
    if rule.is_over:
        return "the rule is over"
    if one.user not in rule.users and not set(one.groups) & set(rule.groups):
        return "it names other people"
    if rule.texts and one.text not in rule.texts:
        return "it is about other programs"
    if one.sees_files and not rule.takes_files:
        return "it lets no program see people's files"
    if not _folded(one.columns) <= _folded(rule.columns):
        return "the program reads a column that it does not list"
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
            return f"the range of output {output.name!r} is wider"
    return None


# --- reading --------------------------------------------------------------------------------------

_KEYS = {
    "users", "groups", "columns", "outputs", "most_epsilon", "most_total", "most_delta", "texts",
    "takes_files",
}  # fmt: skip


def read_rule(card: Card, shape: object, made: tuple[str, str, str]) -> Rule:
    """Return the rule that an owner writes (with its id, whose it is, and when), or refuse."""
    body = as_table(shape, "rule", _KEYS)
    users, groups, columns, texts = (
        _names(body.get(key, []), key) for key in ("users", "groups", "columns", "texts")
    )
    if not users and not groups:
        raise bad_pipeline("a rule names users or groups")
    if not set(groups) <= set(card.who):
        raise bad_pipeline("a rule's groups are among those that the card lets ask")
    if not columns:
        raise bad_pipeline("a rule lists the columns that programs may read")
    if any(len(text) != 64 or not set(text) <= set("0123456789abcdef") for text in texts):
        raise bad_pipeline("texts are SHA-256 sums of program texts")
    takes_files = body.get("takes_files", False)
    if not isinstance(takes_files, bool):
        raise bad_pipeline("takes_files is true or false")
    most, total = (read_epsilon(body.get(key), key) for key in ("most_epsilon", "most_total"))
    if total < most:
        raise bad_pipeline("most_total is less than a run may cost")
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
    if len(names) > MOST_NAMES or not all(0 < len(n) <= 100 and n.isprintable() for n in names):
        raise bad_pipeline(f"{key} is a list of up to {MOST_NAMES} names")
    return names


def _ranges(shape: object) -> tuple[Range, ...]:
    if not isinstance(shape, list) or not 1 <= len(shape) <= MOST_NAMES:
        raise bad_pipeline("a rule's outputs are a list of name, lower and upper")
    ranges = tuple(_range(one) for one in shape)
    if len({one.name for one in ranges}) < len(ranges):
        raise bad_pipeline("two outputs of a rule have one name")
    return ranges


def _range(shape: object) -> Range:
    if not isinstance(shape, dict) or set(shape) != {"name", "lower", "upper"}:
        raise bad_pipeline("an output of a rule has name, lower and upper")
    name = shape["name"]
    if not isinstance(name, str) or not name.isidentifier() or len(name) > 63:
        raise bad_pipeline("an output's name is letters, digits and _, and begins with no digit")
    lower, upper = (bound_of(shape[end], name, end) for end in ("lower", "upper"))
    if lower >= upper:
        raise bad_pipeline(f"lower of output {name!r} is not below its upper")
    return Range(name, lower, upper)


def beyond(rule: Rule, epsilon: Fraction, delta: Fraction) -> Refused | None:
    """Return the refusal of a run that one rule's limits of a run do not hold, or None."""
    if rule.is_over:
        why = "The rule that approved it is over."
    elif epsilon > rule.most_epsilon or delta > rule.most_delta:
        why = (
            f"The rule that approved it lets a run cost epsilon {float(rule.most_epsilon):g}"
            f" and delta {float(rule.most_delta):g}."
        )
    else:
        return None
    return Refused("pipeline-waits", why, "Ask the owner to approve the program themselves.")
