"""Ask for a data card at a terminal, in the three steps of `card_steps`; nothing else is kept."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

import click

from sfumato.cli.guided_card import (
    add_command,
    check_no_draft,
    draft_path,
    write_card,
    write_draft,
)
from sfumato.cli.shell import Shell, show_elapsed
from sfumato.cli.toml_text import toml_key, toml_value
from sfumato.client.text_tables import printable
from sfumato.dp.refusal import Refused
from sfumato.features.data_sets.card_preview import column_preview, column_previews
from sfumato.features.data_sets.card_steps import (
    COLUMN_TYPES,
    MARKERS,
    MAX_COLUMNS,
    NAME_,
    OF_COLUMN,
    POINT,
    STEPS,
    TYPE,
    UNIT,
    VERSION,
    WHO,
    Question,
    Step,
    bound_fault,
    budget_meaning,
    card_fault,
    card_of,
    column_questions,
    columns_of,
    faults,
    is_unit,
    proposed_answers,
    questions_of,
    unit_meaning,
    unit_reason,
)
from sfumato.features.data_sets.earlier_card import (
    earlier_answers,
    kept_terms,
    with_kept,
    without_optional,
)
from sfumato.features.data_sets.missing_markers import (
    is_missing,
    marker_questions,
    question_text,
    with_marker,
)
from sfumato.wire.connection_name import read_connection

WIDTH: Final = 88
_DONE: Final = "done"
NONE: Final = "none"  # what clears an answer that has a default
_TABLES: Final = ("caps", "ask", "airlock", "columns")  # of the card's text
_YES_NO: Final = {"y": "yes", "n": "no", "yes": "yes", "no": "no"}
_NUMBERS: Final = tuple(str(number) for number in range(1, len(STEPS) + 1))
Move = Literal[-1, 1]  # to the step before, or to the next
_MENU: Final = Question(
    "column", "Column", "",
    "A number or a name goes to that column, done accepts all columns as they are listed, and back "
    "returns to step 2.",
)  # fmt: skip
_KEEP: Final = Question(
    "keep", "", "Keep these terms of the version before?",
    "They limit or allow what answers give away. Without the cap of each user, one user may spend "
    "the whole budget. To change a term alone, save the card, change it there, and add the rows "
    "with --card.",
)  # fmt: skip
_SAVE: Final = Question("save", "", "Save the card as a file?", "A card can be used again, and "
                        "says more than these questions: see its comments.")  # fmt: skip


@dataclass(frozen=True)
class Target:
    """What is added: the data set's name, and where its rows are."""

    shell: Shell
    name: str
    source: str
    table: str | None
    opened: Callable[[], AbstractContextManager[Any]]  # Any: the client's vault
    publish: Callable[[Mapping[str, object]], None]


def add_by_dialog(target: Target) -> None:
    """Ask the owner for a card, show it, and add the data set with it.

    Ctrl-C stops, and leaves nothing behind. The vault is closed while the owner thinks.
    """
    place = (target.shell, target.name, target.source, target.table)
    check_no_draft(*place)
    with target.opened() as vault:
        earlier = None
        with suppress(Refused):
            earlier = vault.call("card", {"data_set": target.name})
        with show_elapsed("Reading the columns"):
            more = [target.table] if target.table else []
            found = vault.proposed(target.name, target.source, *more)
        groups = _groups(target, vault)
    # a folder's texts become public, and have to be read in an editor
    if "bids" in found["card"] or len(found["columns"]) > MAX_COLUMNS:
        write_draft(target.shell, found, target.name, add_command(*place))
        return
    answers = {**proposed_answers(found, earlier), "name": target.name}
    answers |= {"two": ""} if earlier is None else {}
    if wrong := faults(answers, "who").get("name"):
        raise Refused("bad-card", wrong, "Choose another name.")
    try:
        _Dialog(target, answers, groups, {} if earlier is None else earlier_answers(earlier)).run()
    except click.Abort:
        sent = " The service deletes what was sent to it within a day."
        is_sent = target.shell.is_remote and read_connection(target.source) is None
        _say("\nStopped. Nothing was added, and no file was written." + (sent if is_sent else ""))
        raise


def _groups(target: Target, vault: Any) -> list[str]:  # Any: the client's vault
    """Return the groups of users that the vault has, as far as the owner may see them."""
    cards = vault.call("data-sets", {})["data_sets"]
    found = {str(group) for card in cards for group in card["who"]}
    if not target.shell.is_remote:
        found |= {group for _, group in vault.owner.catalogue.enrolled()}
    return sorted(found)


@dataclass
class _Dialog:
    """The state of one conversation: the answers so far, and the columns that were visited."""

    target: Target
    answers: dict[str, str]
    groups: list[str]
    earlier: Mapping[str, str]  # the answers of the earlier card; {} if there is none
    visited: set[int] = field(default_factory=set)
    is_let_go: bool = False  # the owner does not keep the earlier card's terms

    def run(self) -> None:
        """Ask the three steps, then show the card, and publish and save it if the owner agrees."""
        count = len(columns_of(self.answers))
        _say(
            f"{self.target.source} has {count} columns. Three steps make its data card, which is "
            "public. Enter takes the answer in [brackets], ? explains, back goes back, and Ctrl-C "
            "stops."
        )
        if self.earlier:
            _say(
                f"There is a data set {self.target.name} already. This adds a new version of it, "
                "and asks about all columns again. To keep its columns, its limits and its further "
                "tables, give its card with --card."
            )
        at = 0
        while True:
            while at < len(STEPS):
                at = max(0, at + self._step(STEPS[at]))
            again = self._finish()
            if again is None:
                return
            at = again

    # --- the steps

    def _step(self, step: Step) -> Move:
        number = STEPS.index(step) + 1
        _say(f"\nStep {number} of {len(STEPS)}: {step.title}. {step.lead}")
        if step.name == "columns":
            return self._columns()
        questions = [q for q in questions_of(step, self.answers) if q is not NAME_]
        questions += [VERSION] if step.name == "who" and self.earlier else []
        questions += [WHO] if step.name == "much" and self.groups else []
        questions += [_KEEP] if step.name == "much" and kept_terms(self.earlier) else []
        return self._questions(step, questions)

    def _questions(self, step: Step, questions: list[Question]) -> Move:
        at = 0
        while at < len(questions):
            question = questions[at]
            if question is UNIT:
                self._list_columns()
            typed = _ask(question, self._default(question), self._text(question))
            if typed is None:
                if at == 0:
                    return -1
                at -= 1
                continue
            if question is _KEEP:
                if typed.casefold() not in _YES_NO:
                    _say("  Write yes or no.")
                    continue
                self._keep(is_kept=_YES_NO[typed.casefold()] == "yes")
                at += 1
                continue
            before = self.answers.get(question.name, "")
            self.answers[question.name] = self._named(typed) if question is UNIT else typed
            if wrong := faults(self.answers, step.name).get(question.name):
                self.answers[question.name] = before
                _say(f"  {wrong}")
                continue
            self._explain(question)
            at += 1
        return 1

    def _default(self, question: Question) -> str:
        if question is _KEEP:
            return "no" if self.is_let_go else "yes"
        return self.answers.get(question.name, "")

    def _text(self, question: Question) -> str:
        """Return a question with what this vault has of it; "" if the question says it all."""
        if question is WHO:
            return f"{WHO.text} There are: {', '.join(self.groups)}."
        if question is _KEEP:
            return f"{_KEEP.text} {'; '.join(kept_terms(self.earlier))}. yes or no."
        return ""

    def _keep(self, *, is_kept: bool) -> None:
        """Keep the earlier card's terms, or let them go."""
        self.is_let_go = not is_kept
        if is_kept:
            self.answers = with_kept(self.answers, self.earlier)
            return
        self.answers = without_optional(self.answers)
        if stay := kept_terms(self.answers):
            _say(f"  These stay, as raising a cap takes a second person: {'; '.join(stay)}.")

    def _list_columns(self) -> None:
        names = [f"{n}\u00a0{name}" for n, name in enumerate(columns_of(self.answers), 1)]
        _say("Columns: " + "   ".join(name.replace(" ", "\u00a0") for name in names))
        _say(unit_reason(self.answers))

    def _named(self, typed: str) -> str:
        """Return a column by its number in the list; any other text unchanged."""
        columns = columns_of(self.answers)
        if typed in columns or not (typed.isascii() and typed.isdecimal()):
            return typed
        return columns[int(typed) - 1] if 1 <= int(typed[:9]) <= len(columns) else typed

    def _explain(self, question: Question) -> None:
        """Say what the answers mean, after the last one that decides it."""
        if question is UNIT:
            _say(f"  {unit_meaning(self.answers)}")
        if question.name == "delta":
            for line in budget_meaning(self.answers):
                _say(f"  {line}")

    # --- columns

    def _columns(self) -> Move:
        if not self._markers():
            return -1
        self._show_columns()
        while True:
            columns, ahead = columns_of(self.answers), self._next_open()
            # with its number, as a column may be called done
            default = _DONE if ahead is None else f"{ahead + 1} {columns[ahead]}"
            text = "Which column should change? Enter goes on with the one in brackets; done ends."
            if ahead is None:
                text = "Which column should change? Enter, if none."
            typed = _ask(_MENU, default, text)
            if typed is None:
                return -1
            if typed == _DONE:
                return 1
            is_next = ahead is not None and typed == default
            chosen = columns[ahead] if ahead is not None and is_next else self._named(typed)
            if chosen not in columns:
                _say(f"  There is no column {chosen!r}. Write a name or a number, or done.")
                continue
            number = columns.index(chosen)
            self.visited.add(number)
            self._column(number)

    def _markers(self) -> bool:
        """Ask which words of the cells are missing values; return False if the owner goes back."""
        names = columns_of(self.answers)
        asked = [
            replace(one, cells=cells)
            for one in marker_questions(self.answers, len(names))
            if (cells := tuple(c for c in one.cells if not is_unit(self.answers, c[0])))
        ]
        at = 0
        while at < len(asked):
            default = "yes" if is_missing(self.answers, asked[at]) else "no"
            typed = _ask(MARKERS, default, question_text(asked[at], names))
            word = _YES_NO.get((typed or "").casefold())
            if typed is None:
                if at == 0:
                    return False
                at -= 1
            elif word is None:
                _say("  Write yes or no.")
            else:
                is_yes = word == "yes"
                self.answers = with_marker(self.answers, asked[at], missing=is_yes)
                at += 1
        return True

    def _next_open(self) -> int | None:
        """Return the next column without bounds or a list that the owner has not seen."""
        seen = enumerate(column_previews(self.answers))
        return next((n for n, one in seen if one.is_open and n not in self.visited), None)

    def _show_columns(self) -> None:
        for number, one in enumerate(column_previews(self.answers), 1):
            _say(f"{number:>4} {_seen(one.name, self.answers, number - 1)}", "     ")

    def _column(self, number: int) -> None:
        """Ask about one column until the answers fit together; back leaves it as it was."""
        before = dict(self.answers)
        name = columns_of(self.answers)[number]
        if is_unit(self.answers, number):
            _say(f"  {name} names the person (step 1), so it is always hidden.")
            return
        while True:
            _say(f"{name}:")
            if not self._column_answers(number):
                self.answers = before
                return
            one = column_preview(self.answers, number)
            if not one.fault:
                seen = "Researchers see: " if one.type else ""
                _say(f"  {seen}{_seen(name, self.answers, number)}", "    ")
                return
            _say(f"  {one.fault}")

    def _column_answers(self, number: int) -> bool:
        """Ask the questions on a column; return False if the owner goes back."""
        at, asked = f"c{number}-", [TYPE]
        place = 0
        while place < len(asked):
            question = asked[place]
            typed = _ask(question, self.answers.get(at + question.name, ""))
            if typed is None:
                if place == 0:
                    return False
                place -= 1
                continue
            if question is TYPE:
                if typed not in COLUMN_TYPES:
                    _say(f"  Write one of {', '.join(COLUMN_TYPES)}.")
                    continue
                asked = [TYPE, *column_questions(self.answers, number, typed)]
                self._forget(number, {q.name for q in asked})
            elif wrong := bound_fault(question, self.answers[at + TYPE.name], typed):
                _say(f"  {wrong}")
                continue
            self.answers[at + question.name] = typed
            place += 1
        return True

    def _forget(self, number: int, kept: set[str]) -> None:
        """Forget the answers on a column that its new type does not have."""
        for part in (q.name for q in OF_COLUMN if q not in (TYPE, POINT, MARKERS)):
            if part not in kept:
                self.answers.pop(f"c{number}-{part}", None)

    # --- the end

    def _finish(self) -> int | None:
        """Show the card and publish it; return the step to go back to, or None at the end."""
        refused = card_fault(self.answers)
        if refused is not None:
            self.target.shell.refuse(refused)
            return len(STEPS) - 1
        name = self.target.name
        text = card_toml(name, card_of(self.answers))
        click.echo("\n" + "\n".join(map(printable, text.splitlines())) + "\n")
        chosen = self._choice(f"Add {name} with this card? yes, no, or 1, 2, 3: back to a step.")
        if chosen in _NUMBERS:
            return _NUMBERS.index(chosen)
        is_kept = self._is_saved()
        if is_kept:
            write_card(draft_path(name), text)
            _say(f"Wrote {draft_path(name)}.")
        if chosen == "no":
            self._say_next(is_kept)
            return None
        return self._publish(is_kept)

    def _publish(self, is_kept: bool) -> int | None:
        try:
            self.target.publish(card_of(self.answers))
        except Refused as refused:
            found = refused
        else:
            return None
        self.target.shell.refuse(found)
        again = self._choice("Try again (yes), stop (no), or go back to step 1, 2, 3?", "no")
        if again in _NUMBERS:
            return _NUMBERS.index(again)
        if again == "yes":
            return len(STEPS)
        self._say_next(is_kept)
        raise click.exceptions.Exit(3)

    def _say_next(self, is_kept: bool) -> None:
        target = self.target
        command = add_command(target.shell, target.name, target.source, target.table)
        _say("Nothing was added." + (f" To add it later: {command}" if is_kept else ""))

    def _is_saved(self) -> bool:
        question = f"Save the card as {draft_path(self.target.name)}? yes or no."
        return self._choice(question, "yes", ()) == "yes"

    def _choice(self, text: str, default: str = "yes", numbers: tuple[str, ...] = _NUMBERS) -> str:
        """Ask for yes, no or the number of a step; back is the last step, if one may be chosen."""
        while True:
            typed = _ask(_SAVE, default, text)
            if typed is None:
                return numbers[-1] if numbers else "no"
            word = _YES_NO.get(typed.casefold(), typed.casefold())
            if word in ("yes", "no", *numbers):
                return word
            _say("  Write yes or no" + (", or the number of a step." if numbers else "."))


def _seen(name: str, answers: Mapping[str, str], number: int) -> str:
    """Return one line that says what researchers see of a column."""
    one = column_preview(answers, number)
    if one.fault:
        return f"{name}: {one.fault}"
    if not one.type:
        return f"{name}. {one.note}"
    examples = f", for example {', '.join(one.examples)}"
    note = f". {one.note}" if one.note else ""
    return f"{name}: {one.type}, {one.values}{examples}{note}"


def _ask(question: Question, default: str, text: str = "") -> str | None:
    """Ask one question and return the answer, or None for back; `?` explains it."""
    _say(text or question.text)
    hint = f"  [{printable(default)}]" if default else "  []"
    while True:
        typed = str(click.prompt(hint, default="", show_default=False, prompt_suffix=" ")).strip()
        if typed == "?":
            _say(f"  {question.help}")
        elif typed == "back":
            return None
        elif typed == NONE and not question.is_needed:
            return ""
        else:
            return typed or default


def _say(text: str, further: str = "  ") -> None:
    """Print a text in lines of a terminal's width, without its control characters."""
    for line in text.split("\n"):
        made = textwrap.wrap(
            line, WIDTH, subsequent_indent=further, break_long_words=False, break_on_hyphens=False,
            drop_whitespace=True,
        )  # fmt: skip
        click.echo("\n".join(printable(one.replace("\u00a0", " ")) for one in made))


def card_toml(name: str, card: Mapping[str, object]) -> str:
    """Return the text of a finished data card."""
    lines = [
        f"# The data card of {toml_value(name)}. Everything in this file is public.",
        "# Bounds and keys are the owner's decision: from knowledge, never from rows.",
    ]
    tables = {key: value for key, value in card.items() if key in _TABLES}
    lines += [f"{key} = {toml_value(card[key])}" for key in card if key not in tables]
    for key in _TABLES[:-1]:
        own = tables.get(key)
        if isinstance(own, Mapping) and own:
            lines += ["", f"[{key}]", *_pairs(own)]
    columns = tables.get("columns")
    for column, shape in columns.items() if isinstance(columns, Mapping) else ():
        lines += ["", f"[columns.{toml_key(column)}]", *_pairs(shape)]
    return "\n".join(lines) + "\n"


def _pairs(shape: Mapping[str, object]) -> list[str]:
    return [f"{toml_key(key)} = {toml_value(value)}" for key, value in shape.items()]
