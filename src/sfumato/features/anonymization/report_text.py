"""Format the results of the anonymity commands as lines of text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sfumato.client.text_tables import printable, table_text

Shape = Mapping[str, Any]  # Any: the service's JSON
WHAT_IT_IS_NOT: Final = (
    "k-anonymity is not differential privacy: docs/how-to/anonymity.md says what it does not "
    "protect from."
)
_MEASURES: Final = ("l", "entropy_l", "recursive_c", "alpha", "t", "beta", "enhanced_beta", "delta")
SHOWN: Final = 12
_WIDEST: Final = 40  # longest text of a cell


def worded(lines: Sequence[str]) -> str:
    """Join the lines to one text for the terminal.

    Control characters are escaped, so that a file's content cannot control the terminal.
    """
    return "\n".join(map(printable, lines))


def check_lines(found: Shape) -> list[str]:
    """Format the result of `anonymity check`: k, risks, sensitive columns, worst classes."""
    if not found["rows"]:
        return [_for(found), "The table has no rows."]
    return [
        _for(found),
        f"k = {found['k']:,} by {', '.join(found['quasi']) or 'nothing'}: {found['rows']:,} rows, "
        f"{found['classes']:,} classes, {found['alone']:,} rows alone.",
        *_risk_lines(found["risks"]),
        *_secret_lines(found["sensitive"]),
        *_worst_lines(found),
        WHAT_IT_IS_NOT,
    ]


def unique_lines(found: Shape) -> list[str]:
    """Format which combinations of columns make people unique."""
    rows = found["rows"]
    cells = [
        (" + ".join(one["columns"]), f"{one['unique']:,}", _share(one["unique"], rows))
        for one in found["choices"][:SHOWN]
    ]
    special = found["special"]
    parts = sorted(special["by_column"].items(), key=lambda part: -part[1])
    named = ", ".join(f"{name} {share:.0%}" for name, share in parts[:SHOWN])
    return [
        _for(found),
        f"{len(found['choices']):,} choices of columns; the most identifying:",
        *_table(("columns", "alone", "of the rows"), cells),
        f"{special['rows']:,} rows are unique by few columns; their scores: {named}.",
    ]


def preview_lines(found: Shape) -> list[str]:
    """Format some values at each level of the proposed generalisation hierarchies."""
    lines = [_for(found)]
    for name, rows in found["preview"].items():
        levels = [f"level {i}" for i in range(len(rows[0]) if rows else 0)]
        lines += ["", f"{name}:", *(_table(levels, rows) if rows else ["no values"])]
    return lines


def reach_lines(found: Shape) -> list[str]:
    """Format the result of `anonymity reach`: the goal, information loss, risk, hierarchies."""
    utility, risks = found["utility"], found["risks"]
    levels, blunt = found["levels"], ", ".join(found["blunted"])
    besides = f"; columns coarsened before, {blunt}, are not included" if blunt else ""
    lines = [
        _for(found),
        f"{found['guarantee']}: {found['goal']}, by {found['method']} recoding; "
        f"{_reached(found['checked'])}.",
        f"Information loss {utility['loss']:.3f} (0: nothing, 1: everything{besides}), "
        f"{utility['suppressed']:,} rows suppressed, {utility['classes']:,} classes of "
        f"{utility['mean_class']:.1f} rows on average.",
        f"The highest re-identification risk falls to {risks['prosecutor']['highest']:.1%}.",
    ]
    if levels is not None:
        named = ", ".join(f"{name} {level}" for name, level in levels.items())
        lines.append(f"Levels: {named} ({found['looked']:,} of {found['nodes']:,} ways tried).")
    lines += _rule_lines(found["hierarchies"])
    for name, one in found["learnt"].items():
        lines.append(
            f"A model predicts {name} correctly in {one['before']:.1%} before, "
            f"{one['after']:.1%} after, and {one['guessing']:.1%} by the most common answer."
        )
    if found["formulas"]:
        lines.append(
            "These columns have cells that begin like a formula, and a spreadsheet would compute "
            f"them: {', '.join(found['formulas'])}."
        )
    return [*lines, *_handed_out(found), WHAT_IT_IS_NOT]


def leak_lines(found: Shape) -> list[str]:
    """Format how much of its original a synthetic table reveals, such as equal rows."""
    rows = found["rows"]
    lines = [
        _for(found),
        f"{found['whole']:,} of {rows:,} rows equal a row of the original, "
        f"{found['whole_alone']:,} of them a row that is unique there. {found['partial']:,} "
        f"differ in one column at most. {found['same_place']:,} equal the row at the same "
        "position.",
        f"Distance to the closest original row, median: {found['distance']:.4f}"
        + _beside(found["distance_of_held_back"], " (rows held back: {:.4f})"),
    ]
    nearer = found["nearer_than_held_back"]
    if nearer is None:
        lines.append("Without --held-back, nothing shows which distance is too small.")
    else:
        lines.append(
            f"{nearer:.1%} are nearer to the original than to the rows held back; for new people "
            f"it would be {found['nearer_by_chance']:.1%}."
        )
    if found["tried"] < rows:
        lines.append(f"The distances are of {found['tried']:,} rows, sampled evenly.")
    cells = [
        (
            name,
            f"{one['unique_kept']:,} of {one['unique']:,}",
            _yes(one["low_kept"]),
            _yes(one["high_kept"]),
        )
        for name, one in found["kept"].items()
    ]
    return [*lines, *_table(("column", "unique values kept", "lowest", "highest"), cells)]


def _for(found: Shape) -> str:
    return f"[{found['for']}]"


def _risk_lines(risks: Shape) -> list[str]:
    lines = [
        "Re-identification risk if the attacker knows who is in the table: at most "
        f"{risks['prosecutor']['highest']:.1%}, on average {risks['prosecutor']['mean']:.1%}; "
        f"for all people: {risks['marketer']:.1%}.",
    ]
    if risks["journalist"] is not None:
        unique = risks["population_uniques"]
        lines.append(
            f"If the attacker does not know: at most {risks['journalist']['highest']:.1%}"
            + _beside(unique, "; about {:.1%} of the population are unique in it") + "."
        )  # fmt: skip
    return lines


def _secret_lines(sensitive: Shape) -> list[str]:
    if not sensitive:
        return []
    cells = [
        (name, *(_number(numbers[measure]) for measure in _MEASURES))
        for name, numbers in sensitive.items()
    ]
    return ["", *_table(("sensitive", *_MEASURES), cells)]


def _worst_lines(found: Shape) -> list[str]:
    if not found["worst"]:
        return []
    cells = [
        (*(one["values"][name] for name in found["quasi"]), f"{one['size']:,}")
        for one in found["worst"]
    ]
    return ["", "Worst classes first:", *_table((*found["quasi"], "rows"), cells), ""]


def _rule_lines(rules: Shape) -> list[str]:
    """Format which generalisation hierarchies were proposed, and which given ones were unused."""
    lines = []
    if rules["proposed"]:
        lines.append(f"Hierarchies proposed, not given, for: {', '.join(rules['proposed'])}.")
    if rules["unused"]:
        lines.append(f"Hierarchies given but not used: {', '.join(rules['unused'])}.")
    return lines


def _handed_out(found: Shape) -> Sequence[str]:
    if "handed_out" in found:
        entry = found["handed_out"]
        return [f"Entry {entry['seq']} of the ledger; from now on: {entry['note']}."]
    if "written" in found:
        return [
            f"Written to {found['written']}. No ledger records it, because you named no --data-set."
        ]
    return []


def _table(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> list[str]:
    return table_text([_cell(name) for name in columns], [[*map(_cell, row)] for row in cells])


def _cell(text: str) -> str:
    shown = printable(text)
    return shown if len(shown) <= _WIDEST else f"{shown[: _WIDEST - 3]}..."


def _reached(checked: Shape) -> str:
    return f"k = {checked['k']:,} is reached" if checked["rows"] else "no row is in it"


def _beside(value: float | None, text: str) -> str:
    return "" if value is None else text.format(value)


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.4g}"


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "-"


def _yes(value: bool) -> str:
    return "kept" if value else "-"
