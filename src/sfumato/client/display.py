"""Views of cards, budgets, prices and reports: JSON for programs, tables for people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from html import escape
from typing import Any, Final

from sfumato.client.answer_table import advice_lines
from sfumato.client.ask_terms import Json
from sfumato.client.text_tables import (
    number_text,
    printable,
    table_html,
    table_text,
    warned,
    warned_html,
)

PRINTED = 12  # the most lines of a trial's output that are displayed; the object has all lines

# `Any` below is JSON of the wire; the contract tests check its shape.


@dataclass(frozen=True)
class _Shown:
    """A JSON object of the service that works like a mapping and prints as lines of text."""

    shape: Json

    def __getitem__(self, key: str) -> Any:
        return self.shape[key]

    def lines(self) -> list[str]:
        """Return the JSON object as lines of text, one for each key."""
        return [f"{key}: {value}" for key, value in self.shape.items()]

    def __repr__(self) -> str:
        return "\n".join(map(printable, self.lines()))

    def _repr_html_(self) -> str:
        return "<br>".join(escape(line) for line in self.lines())


class Budget(_Shown):
    """The privacy budget (cap, spent, left) of a data set, its people and the user."""

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Return the budget as a table: the header, and one row for each account."""
        people: Any = self["people"]
        whose = [("data set", self.shape), (f"people {people['domain']}", people)]
        whose += [(name.replace(":", " ", 1), budget) for name, budget in self["yours"].items()]
        return ["budget of", "cap", "spent", "left", "largest next"], [
            [
                name,
                f"{budget['cap']['epsilon']:g}",
                f"{budget['spent']['epsilon']:g}",
                f"{budget['left']['epsilon']:g}",
                f"{budget['left']['next_epsilon']:g}",
            ]
            for name, budget in whose
        ]

    def lines(self) -> list[str]:
        """Return the budget table as lines of text, with delta if the cap has one."""
        lines = table_text(*self.table())
        if self["cap"]["delta"]:
            lines.append(f"delta: {self['left']['delta']:g} left of {self['cap']['delta']:g}")
        window = self.shape.get("window")
        return [*lines, str(window["says"])] if isinstance(window, dict) else lines

    def _repr_html_(self) -> str:
        return table_html(*self.table())


class Price(_Shown):
    """The price of a question, and the error to expect of its answer."""

    def lines(self) -> list[str]:
        """Return the price, the errors to expect, and other prices as lines of text."""
        free = bool(self.shape.get("free"))  # older services do not send this field
        paid = "already paid: asking the same question again is free, and gives the same numbers"
        lines = [
            f"{self['says']}",
            f"epsilon {self['epsilon']:g}, {paid if free else 'nothing spent yet'}",
        ]
        lines += [self._error_line(name, error) for name, error in self["error"].items()]
        lines += [*assumed_words(self.shape), *self._keys_line(), *self._top_up_lines()]
        lines += [f"{self['bounding']}", *advice_lines(self.shape), f"{self['odds']}"]
        lines += table_text(*self.table())
        if free:
            return lines
        rest = self["left"]["next_epsilon"]
        fits = "it fits" if self["fits"] else "it does NOT fit"
        left = f" what is left (epsilon {rest:g} at most)" if rest > 0 else ": nothing is left"
        return [*lines, fits + left]

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Return other prices as a table: their errors, and what an answer reveals at most."""
        names = [name for name, error in self["error"].items() if error is not None]
        head = ["epsilon", *(f"± {name}" for name in names), "50 % sure becomes at most"]
        return head, [
            [
                f"{offer['epsilon']:g}",
                *(_or_unknown(offer["error"][n]) for n in names),
                f"{min(offer['sure'], 99.99):.4g} %",
            ]
            for offer in self["at"]
        ]

    def _top_up_lines(self) -> list[str]:
        raised = self.shape.get("top_up")
        if not isinstance(raised, dict):
            return []
        one = raised["one_draw"]
        errors = [
            f"{name} ± {number_text(float(error), float(error))}"
            for name, error in one["error"].items()
            if error is not None
        ]
        return [
            f"a top-up: {raised['says']}",
            f"one new answer for epsilon {one['epsilon']:g} would give "
            f"{', '.join(errors) or 'an error that is not known in advance'}",
        ]

    def _keys_line(self) -> list[str]:
        for part in self["split"]:
            shown = part.get("shown_from_people")
            if shown is not None:
                half, sure = shown["half"], shown["nearly always"]
                return [
                    (
                        f"a group is shown with probability 1/2 from about {half:,} people on, and "
                        f"nearly always from {sure:,}"
                    )
                ]
        return []

    def _error_line(self, name: str, error: float | None) -> str:
        if error is not None:
            return f"{name}: ± {number_text(float(error), float(error))} at 95 %"
        rank = self["rank_error"].get(name)
        if rank is not None:
            return f"{name}: its rank is within {rank:,} rows of the true rank at 95 %"
        if not self["error_by_people"].get(name):
            return f"{name}: its error is not known in advance"
        sizes = ", ".join(
            f"± {number_text(margin, margin)} for {size:,} people"
            for size, margin in self["error_by_people"].get(name, [])
        )
        return f"{name}: {sizes} (at 95 %)"


class SubmittedProgram(_Shown):
    """A submitted program as its owner sees it for approval, with the noise of its numbers."""

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Return the noise of each output as a table, with one row for each number of blocks."""
        names = list(self["errors"]["at"][0]["noise"])
        return ["blocks", *(f"± {name}" for name in names)], [
            [f"{row['blocks']:,}", *(f"{row['noise'][name]:.4g}" for name in names)]
            for row in self["errors"]["at"]
        ]

    def lines(self) -> list[str]:
        """Return the program's state and the table of its noise as lines of text."""
        return [*self._head(), *table_text(*self.table())]

    def _head(self) -> list[str]:
        title = self.shape.get("title")  # older services do not send it
        named = f" {title}, with the digest" if title else ""
        state = {"waiting": "it waits for the owner"}.get(str(self["state"]), self["state"])
        return [
            f"Submitted{named} {self['digest']}: {state}.",
            f"Noise of a run at epsilon {self['errors']['epsilon']:g}, at 95 %:",
        ]

    def _repr_html_(self) -> str:
        return f"<p>{'<br>'.join(map(escape, self._head()))}</p>{table_html(*self.table())}"


class BlocksPlan(_Shown):
    """The noise and bias of a program for several numbers of blocks, tried on synthetic people."""

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Return the noise and bias as a table, by number of blocks and output.

        The last column counts the tried blocks that gave no number. The bias is "-" if all blocks,
        or the run on all people, gave no number.
        """
        head = ["blocks", "output", "noise at 95 %", "bias", "bias known to", "no number"]
        return head, [
            [
                f"{row['blocks']:,}",
                name,
                f"± {noise:.4g}",
                *self._bias(row, name),
                f"{_without(row, name)} of {row['tried']}",
            ]
            for row in self["at"]
            for name, noise in row["noise"].items()
        ]

    def _bias(self, row: Mapping[str, Any], name: str) -> tuple[str, str]:
        if name in self["silent"] or _without(row, name) == row["tried"]:
            return "-", "-"
        return f"{row['bias'][name]:+.4g}", f"± {row['bias_within'][name]:.2g}"

    def lines(self) -> list[str]:
        """Return the plan as lines of text: warnings, trials, the table, and the trial's limits."""
        head, foot = self._words()
        first = [*warned(self.shape.get("warnings", ())), *self._trial_lines()]  # type: ignore[arg-type]  # JSON
        more = [*self._choice_lines(), *self._sql_lines()]
        return [*first, head, *table_text(*self.table()), *more, *foot]

    def _sql_lines(self) -> list[str]:
        """Return a line for each output that a SQL query gives with less error."""
        offers: Any = self.shape.get("in_sql", [])
        return [str(one["says"]) for one in offers]

    def _choice_lines(self) -> list[str]:
        """Return lines on how to combine the blocks, with the expected errors of each way."""
        choice: Any = self.shape.get("choice")
        if choice is None:
            return []
        line = next(row for row in self["at"] if row["blocks"] == choice["blocks"])
        errors = [f"{_combined(one)} {100 * one['relative']:.3g} %" for one in line["combinations"]]
        return [
            f"Proposed: the {choice['says']} of {choice['blocks']:,} blocks (--take auto).",
            "Expected errors there (noise, bias and spread), relative to the range: "
            f"{', '.join(errors)}.",
        ]

    def _trial_lines(self) -> list[str]:
        """Return lines on how each trial run of the program ended, what it returned and printed.

        Of the runs on blocks, only failed ones are shown.
        """
        trials: Any = self.shape.get("trials", [])
        shown = [one for one in trials if not one["of"].startswith("one of") or _has_failed(one)]
        lines: list[str] = []
        before = ""
        for one in shown:
            read = "".join(f"; {result['output']}: {result['says']}" for result in one["read"])
            people = f"{one['people']:,} synthetic people" if one["people"] else "nobody in it"
            lines.append(f"Tried on {one['of']}, with {people}: {one['ended']}{read}")
            lines += _use_lines(one)
            printed = one["printed"].splitlines()[-PRINTED:]
            is_same = bool(printed) and one["printed"] == before
            lines += ["  | (the same)"] if is_same else [f"  | {line}" for line in printed]
            lines += trace_lines(one, PRINTED)
            before = one["printed"]
        return lines

    def _words(self) -> tuple[str, list[str]]:
        head = f"At epsilon {self['epsilon']:g}, on {self['people']:,} synthetic people:"
        least = f"Least of both errors together: {self['proposed']} blocks. Nothing is spent."
        has_choice = self.shape.get("choice") is not None  # which says more than `least`
        foot = "Nothing is spent." if self["proposed"] is None or has_choice else least
        return head, [foot, f"Note: {self['says']}."]

    def _repr_html_(self) -> str:
        head, foot = self._words()
        words = "<br>".join(map(escape, [*self._choice_lines(), *self._sql_lines(), *foot]))
        first = warned_html(self.shape.get("warnings", ()))  # type: ignore[arg-type]  # JSON
        lines = self._trial_lines()
        trials = f"<pre>{escape(chr(10).join(map(printable, lines)))}</pre>" if lines else ""
        return f"{first}{trials}<p>{escape(head)}</p>{table_html(*self.table())}<p>{words}</p>"


def _combined(one: Mapping[str, Any]) -> str:
    return f"trim {one['trim']}" if one["trim"] else str(one["take"])


def _without(row: Mapping[str, Any], name: str) -> int:
    """Return the number of tried blocks in which the program gave no number for an output.

    Older services send this number as `in_the_middle`.
    """
    return int(row.get("no_number", row["in_the_middle"])[name])


def _use_lines(one: dict[str, Any]) -> list[str]:
    """Return a line on what a trial run used; none from a service that does not say it."""
    if "cpu_s" not in one:
        return []
    many = "" if one["processes"] == 1 else f", {one['processes']} processes at once"
    took = f"It took {one['wall_s']:.2f} s, and used" if "wall_s" in one else "It used"
    return [f"  {took} {one['cpu_s']:.2f} s of processor time, {one['memory_mb']} MB{many}."]


def trace_lines(one: Mapping[str, Any], most: int) -> list[str]:
    """Return lines on the commands that a trial ran and the files that it left.

    Args:
        one: A trial as JSON; one of an older service says nothing of either.
        most: The most commands and files to show.

    Returns:
        The lines, without unprintable characters.
    """
    commands, files = one.get("commands", []), one.get("files", [])
    runs = sum(each["times"] for each in commands[most:]) + one.get("more_commands", 0)
    left = max(0, len(files) - most) + one.get("more_files", 0)
    return [
        *(["  Commands, in the order in which they first ran:"] if commands or runs else []),
        *(f"    $ {printable(each['command'])}{_times(each)}" for each in commands[:most]),
        *([f"    and {runs:,} more runs"] if runs else []),
        *(["  Files in the output folder:"] if files else []),
        *(
            f"    {printable(each['path'])} ({_bytes(each['size'])}): {each['says']}"
            for each in files[:most]
        ),
        *([f"    and {left:,} more"] if left else []),
    ]


def _bytes(size: int) -> str:
    return "1 byte" if size == 1 else f"{size:,} bytes"


def _times(command: Mapping[str, Any]) -> str:
    return "" if command["times"] == 1 else f" ({command['times']:,} times)"


def _has_failed(trial: Mapping[str, Any]) -> bool:
    is_whole = all(result["is_number"] for result in trial["read"])
    return not is_whole or trial["ended"] != "exit status 0"


class TwinPrice(_Shown):
    """The price of a DP twin (synthetic data): what it measures, and the share of private bins."""

    def lines(self) -> list[str]:
        """Return the synthetic twin's price and its measured columns as lines of text."""
        bins, error = self["private_bins"], self.shape.get("error_epsilon")
        return [
            f"epsilon {self['epsilon']:g}, delta {self['delta']:g}, by {self['method']}; "
            + ("it fits" if self["fits"] else "more than is left"),
            *(f"counted in {table}: {', '.join(some)}" for table, some in self["columns"].items()),
            f"from the data card alone: {', '.join(self['from_the_card']) or 'nothing'}",
            f"private bins: {', '.join(bins['columns']) or 'none'}"
            + (f", epsilon {bins['epsilon']:.3g} of it" if bins["columns"] else "")
            + f" (possible: {', '.join(bins['possible']) or 'none'})",
            *([] if error is None else [f"its additional error: epsilon {error:g}"]),
            "Nothing is spent.",
        ]


def assumed_words(price: Mapping[str, object]) -> list[str]:
    """Return a line with the group size that the expected errors assume, if they depend on one."""
    size = price.get("assumed_people")
    if not isinstance(size, int):
        return []
    return [f"errors that depend on a size are for {size:,} people in each group (assumed)"]


class History(_Shown):
    """A page of the user's own earlier questions, the newest first."""

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Return the questions as a table: time, data set, question, price, state, operation id."""
        head = ["when", "data set", "question", "epsilon", "state", "operation"]
        return head, [
            [
                str(one["at"])[:16].replace("T", " "),
                str(one["data_set"]),
                str(one["says"]),
                "free" if one["free"] else f"{float(Fraction(one['epsilon'])):g}",
                str(one["code"] or one["state"]),
                str(one["op"]),
            ]
            for one in self["questions"]
        ]

    def lines(self) -> list[str]:
        """Return the table of questions as lines of text."""
        return table_text(*self.table()) if self["questions"] else ["You have asked nothing yet."]

    def __len__(self) -> int:
        return len(self["questions"])

    def _repr_html_(self) -> str:
        return table_html(*self.table())


class CardView(_Shown):
    """The data card: the owner's public description of a data set."""

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Return the card's columns as a table, with one row for each column of all its tables."""
        rows = [_column_row(column) for column in self["columns"]]
        for table in self["tables"]:
            rows += [
                _column_row({**column, "name": f"{table['name']}.{column['name']}"})
                for column in table["columns"]
            ]
        return ["column", "type", "from", "to", "step", "keys"], rows

    def lines(self) -> list[str]:
        """Return the data card as lines of text."""
        unit = "a row" if self["unit"] == "row" else f"a person ({self['unit']})"
        budget = self["budget"]
        per = f" per {self['window']}" if "window" in self.shape else ""
        return [
            f"{self['name']}, version {self['version']}, people: {self['people']}",
            f"privacy unit: {unit}; epsilon {budget['epsilon']:g}, delta {budget['delta']:g}{per}",
            f"may ask: {', '.join(self['who']) or 'nobody but the owner'}",
            *([f"guarantee: {self['not_dp']}"] if "not_dp" in self.shape else []),
            *([_average_line(self["secure_average"])] if "secure_average" in self.shape else []),
            *map(_table_line, self["tables"]),
            *table_text(*self.table()),
            *self.file_lines(),
        ]

    def file_lines(self) -> list[str]:
        """Return the files of a BIDS folder as lines of text: the data set's, and each person's."""
        own = self.shape.get("bids_files")
        found = [f"files of the data set: {', '.join(own)}"] if isinstance(own, Mapping) else []
        if not self.shape.get("bids"):
            return found
        return [*found, self._people(), *table_text(*self.file_table())]

    def file_table(self) -> tuple[list[str], list[list[str]]]:
        """Return the files of each person as a table: the pattern of their path, and their kind."""
        rows = [[str(pattern), file_kind(str(pattern))] for pattern in self["bids"]]
        return ["file of each person", "kind"], rows

    def _people(self) -> str:
        limits = self.shape.get("folders")
        if not isinstance(limits, Mapping):
            return "Programs read no files of people, because the card does not say bids.people."
        return (
            f"Programs read these files, of {limits['people']} people at most, "
            f"{limits['person_mb']} MB each at most. {{sub}} is the person, such as sub-01."
        )

    def _repr_html_(self) -> str:
        more = ("not_dp" in self.shape) + ("secure_average" in self.shape)
        lines = self.lines()[: 3 + more + len(self["tables"])]
        head = "<br>".join(escape(line) for line in lines)
        files = ""
        if self.shape.get("bids"):
            files = f"<p>{escape(self._people())}</p>{table_html(*self.file_table())}"
        return f"<p>{head}</p>{table_html(*self.table())}{files}"


def file_kind(pattern: str) -> str:
    """Return what kind of file a pattern of a data card means, by the ending of its name."""
    named = (
        ((".nii", ".nii.gz"), "image, with a .json file"),
        ((".tsv", ".csv", ".tsv.gz"), "table"),
        ((".json",), "JSON"),
        ((".bval", ".bvec"), "directions of diffusion"),
        ((".html", ".svg", ".png"), "report"),
        ((".edf", ".bdf", ".vhdr", ".vmrk", ".eeg", ".set", ".fdt", ".fif"), "recording"),
    )
    return next((kind for ends, kind in named if pattern.endswith(ends)), "other")


class AddReport(_Shown):
    """A report on how a data set's rows were read, as coarse shares, for its owner alone."""

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Return the report as a table: by column, the shares of cells that differ from the card.

        In a wide table, columns without anything to report are left out.
        """
        rows = [
            [
                column["column"] if at == 0 else f"{table['table']}.{column['column']}",
                *(column[name] or "-" for name in _SHARES),
            ]
            for at, table in enumerate(self["tables"])
            for column in table["columns"]
        ]
        if len(rows) > _MANY:
            rows = [row for row in rows if not set(row[1:]) <= {_FEWEST, "-"}]
        head = ["column", "empty", "unreadable", "outside bounds", "outside keys"]
        return [*head, "people cut", "rows cut"], rows

    def lines(self) -> list[str]:
        """Return the report on how rows were read as lines of text."""
        if not self["tables"]:
            return ["No report was kept of how the rows were read."]
        return [_READ, *table_text(*self.table()), *self.notes()]

    def notes(self) -> list[str]:
        """Return the report's lines about whole tables, such as rows that were dropped."""
        named = [(table, _named(at, table)) for at, table in enumerate(self["tables"])]
        said = (
            ("without_person", "rows without a person, which are dropped"),
            ("rows_dropped", "rows beyond limits.rows_per_person, which are dropped"),
            ("people_cut", "people with more rows than max_rows"),
            ("rows_cut", "rows that an answer without groups therefore leaves out"),
        )
        foot = [
            f"{name}{words}: {table[key]}"
            for table, name in named
            for key, words in said
            if table[key] is not None
        ]
        foot += [
            (
                f"{name}{column['column']}: every decimal point has three digits behind it. If "
                'they are thousands (1.234), write on the data card: thousands = "." and '
                'decimal = ","'
            )
            for table, name in named
            for column in table["columns"]
            if column.get("like_thousands") is not None
        ]
        if any(table["people_cut"] is not None for table, _ in named):
            foot.append(
                "people cut, rows cut: people with more groups of the column than max_groups or "
                "more rows in one than max_rows, and their rows that answers by it leave out"
            )
        return foot

    def _repr_html_(self) -> str:
        if not self["tables"]:
            return super()._repr_html_()
        words = "<br>".join(map(escape, self.notes()))
        return f"<p>{escape(_READ)}</p>{table_html(*self.table())}<p>{words}</p>"


_READ: Final = "How the rows were read (without noise, so show it to nobody else):"
_SHARES: Final = (
    "empty", "unreadable", "outside_bounds", "outside_keys", "people_cut", "rows_cut",
)  # fmt: skip
_FEWEST: Final = "under 1 %"
_MANY: Final = 40  # columns


def _named(at: int, table: Mapping[str, Any]) -> str:  # Any: JSON of the wire
    return "" if at == 0 else f"{table['table']}: "


def _average_line(terms: Mapping[str, Any]) -> str:  # Any: JSON of the wire
    return (
        f"sums over {terms['sites']} or more sites without noise, secure-average (not DP): "
        f"{terms['releases']} at most"
    )


def _or_unknown(error: float | None) -> str:
    """Return an expected error as text, or "-" if it is unknown.

    An error is unknown if a formula may divide by zero at that price.
    """
    return "-" if error is None else number_text(error, error)


def _column_row(column: Mapping[str, Any]) -> list[str]:
    return [
        column["name"],
        column["type"],
        _or_dash(column["lower"]),
        _or_dash(column["upper"]),
        _or_dash(column["step"]),
        _keys(column["keys"]),
    ]


def _table_line(table: Mapping[str, Any]) -> str:
    if table["public"]:
        return f"table {table['name']}: public, looked up by {table['key']}"
    return f"table {table['name']}: rows of the same people ({table['unit']})"


def _or_dash(value: object) -> str:
    return "-" if value is None else str(value)


def _keys(keys: list[object] | None) -> str:
    if keys is None:
        return "-"
    shown = ", ".join(map(str, keys[:6]))
    return shown if len(keys) <= 6 else f"{shown}, ... ({len(keys):,} keys)"


def column_names(card: CardView) -> tuple[str, ...]:
    """Return the column names of the data set's main table, from the card."""
    return tuple(str(column["name"]) for column in card["columns"])
