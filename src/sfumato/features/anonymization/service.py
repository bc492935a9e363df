"""The owner's k-anonymity service: measure how anonymous a table is, and recode it.

All results are computed from rows without noise. They are labelled owner-only, and no other user
gets them. A table that is handed out is recorded in the ledger first (`hand_out_service.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from sfumato.dp.anonymity.anonymity_check import check
from sfumato.dp.anonymity.coarsening import pseudonyms
from sfumato.dp.anonymity.coded_table import Table, replaced
from sfumato.dp.anonymity.generalization_hierarchy import Hierarchy
from sfumato.dp.anonymity.hierarchy_rules import Rule, built, proposed
from sfumato.dp.anonymity.leakage_check import leaks
from sfumato.dp.anonymity.privacy_criteria import Goal
from sfumato.dp.anonymity.recoded_table import (
    GUARANTEE,
    Recoded,
    RecodingSettings,
    class_sizes,
    recode_by_class,
    recode_globally,
    recode_mondrian,
)
from sfumato.dp.anonymity.reidentification_risk import risks_of
from sfumato.dp.anonymity.special_uniques import special_uniques
from sfumato.dp.anonymity.table_utility import learnt, utility_of
from sfumato.dp.anonymity.tables_in_memory import Tabular, coded_table
from sfumato.dp.anonymity.uniqueness import all_subsets, best_of_each_size
from sfumato.dp.json_values import Json
from sfumato.dp.refusal import Refused
from sfumato.features.anonymization.coarsening_request import Coarsening, blunted
from sfumato.features.anonymization.result_json import (
    check_json,
    formulas_in,
    leaks_json,
    recoded_json,
    risks_json,
    rows_in_order,
)
from sfumato.release.guarantees.k_anonymity import OWNER_ONLY, owners_view
from sfumato.vault.table_reader_port import ReadOrder, TableReader

METHODS: Final = ("global", "local", "mondrian")
CURVE: Final = (2, 3, 5, 10, 20, 50, 100)
SPECIAL: Final = 3  # the most columns that the search for special uniques combines


@dataclass(frozen=True)
class TableFile:
    """A file of the owner, and the name of the table inside, if there are several."""

    path: str
    inner_table: str | None = None

    def order(self, columns: Sequence[str] | None = None, *, is_grouped: bool = False) -> ReadOrder:
        """Return the order to read these columns of the file, or all columns."""
        names = None if columns is None else tuple(dict.fromkeys(columns))
        return ReadOrder(self.path, names, is_grouped, self.inner_table)


@dataclass(frozen=True)
class Recoding:
    """The settings of a recoding for k-anonymity: columns, goal, method and hierarchies."""

    quasi: tuple[str, ...]
    goal: Goal
    sensitive: tuple[str, ...] = ()
    method: str = "global"
    suppress: float = 0.0
    # the hierarchy of each column; a column without one gets a proposed hierarchy
    rules: Mapping[str, Rule] = field(default_factory=dict)
    keep: tuple[str, ...] = ()  # further columns to hand out, unchanged
    names: tuple[str, ...] = ()  # columns to hand out as pseudonyms
    key: bytes = b""  # the secret key from which the pseudonyms are computed
    blunt: tuple[Coarsening, ...] = ()  # coarsenings before the recoding


@dataclass(frozen=True)
class Anonymity:
    """The k-anonymity service; its reader opens only the owner's own files.

    A table is a file (a path, or `TableFile`) or in memory: a frame of pandas, polars or pyarrow,
    an array, a tensor, or rows.
    """

    reader: TableReader

    def check(
        self,
        table: TableFile | Tabular,
        quasi: Sequence[Any] | None = None,  # Any: names, or places in an array
        sensitive: Sequence[Any] = (),  # Any: see above
        *,
        others_known: bool = False,
        fraction: float | None = None,
    ) -> Json:
        """Measure how anonymous the table is: k, l-diversity, t-closeness and others, and risks.

        Args:
            table: A file's path, or a frame, an array, a tensor or rows in memory.
            quasi: The quasi-identifiers; None for all columns that are not sensitive.
            sensitive: The sensitive columns.
            others_known: Measure each sensitive column as if the attacker knew the others.
            fraction: The share of the population that is in the table, for the journalist's risk.

        Returns:
            `k` (the smallest class) and the other measures and risks; owner-only.

        Raises:
            Refused: The table cannot be read, or has no such column.
        """
        quasi = None if quasi is None else [str(name) for name in quasi]
        sensitive = [str(name) for name in sensitive]
        columns = None if quasi is None else [*quasi, *sensitive]
        table = self._read(table, columns, is_grouped=True)
        found = check(table, quasi, sensitive, others_known=others_known)
        sizes = class_sizes(table, found.quasi)
        return _for_the_owner({**check_json(found), "risks": risks_json(risks_of(sizes, fraction))})

    def _read(
        self,
        table: TableFile | Tabular,
        columns: Sequence[str] | None = None,
        *,
        is_grouped: bool = False,
    ) -> Table:
        """Read a table from a file or from memory, with its values as integer codes."""
        if isinstance(table, str | Path):
            table = TableFile(str(table))
        if isinstance(table, TableFile):
            return owners_view(self.reader, table.order(columns, is_grouped=is_grouped))
        return coded_table(table, columns)

    def unique(self, table: TableFile | Tabular, columns: Sequence[str] | None, most: int) -> Json:
        """Find the combinations of columns that make people unique.

        Args:
            table: A file's path, or a frame, an array, a tensor or rows in memory.
            columns: The columns to combine; None for all.
            most: The most columns to combine.

        Returns:
            The number of unique rows for each combination; owner-only.

        Raises:
            Refused: The table cannot be read, or has no such column.
        """
        table = self._read(table, columns, is_grouped=True)
        names = list(table.columns)
        codes = {name: table.columns[name].codes for name in names}
        ranked = all_subsets(codes, most, table.weights)
        scores = special_uniques(table, names, min(most, SPECIAL))
        return _for_the_owner({
            "rows": table.people,
            "choices": [
                {"columns": list(one.columns), "unique": one.unique, "smallest": one.smallest}
                for one in ranked
            ],
            "best": [
                {"columns": list(one.columns), "unique": one.unique, "smallest": one.smallest}
                for one in best_of_each_size(ranked)
            ],
            "special": {
                "rows": int((scores.fewest > 0).sum()),
                "highest": float(scores.scores.max(initial=0.0)),
                "by_column": scores.by_column,
            },
        })  # fmt: skip

    def hierarchies(
        self, table: TableFile | Tabular, columns: Sequence[str]
    ) -> tuple[dict[str, Rule], Json]:
        """Propose a generalisation hierarchy for each column.

        Args:
            table: A file's path, or a frame, an array, a tensor or rows in memory.
            columns: The columns.

        Returns:
            A rule for each column, and a preview of its levels for some values.

        Raises:
            Refused: The table cannot be read, or has no such column.
        """
        table = self._read(table, columns, is_grouped=True)
        rules = {column.name: proposed(column) for column in table.of(columns)}
        made = {name: built(table.columns[name], rule) for name, rule in rules.items()}
        preview = {name: [list(row) for row in one.preview()] for name, one in made.items()}
        return rules, _for_the_owner({"preview": preview})

    def reach(self, table: TableFile | Tabular, how: Recoding) -> tuple[list[list[str]], Json]:
        """Recode a table until it reaches a goal of anonymity.

        The lines have only the quasi-identifiers, the sensitive columns, and the columns in `keep`
        and `names`. They are sorted by content, so that their order reveals nothing.

        Args:
            table: A file's path, or a frame, an array, a tensor or rows in memory.
            how: The columns, the goal, the method and the hierarchies.

        Returns:
            The lines of the recoded table, a header first; and measures of risk and loss.

        Raises:
            Refused: `out-of-reach` if nothing reaches the goal; or the table cannot be read.
        """
        _check_apart(how)
        _check_rules(how)
        columns = [*how.quasi, *how.sensitive, *how.keep, *how.names]
        given = self._read(table, columns)
        table = blunted(given, how.blunt)
        found = _recoded(table, how, how.goal)
        shape = recoded_json(found, utility_of(table, found, how.quasi), how.quasi)
        shape["hierarchies"] = _rules_said(how)
        shape["risks"] = risks_json(risks_of(class_sizes(found.table, how.quasi)))
        shape["learnt"] = _learnt_json(given, found, how)
        shape["blunted"] = sorted({name for one in how.blunt for name in one.columns})
        shape["checked"] = check_json(check(found.table, how.quasi, how.sensitive))
        named = _with_pseudonyms(found.table, how)
        shape["formulas"] = formulas_in(named, columns)
        return [columns, *rows_in_order(named, columns)], _for_the_owner(shape)

    def curve(self, table: TableFile | Tabular, how: Recoding, ks: Sequence[int] = CURVE) -> Json:
        """Compute risk and information loss for several k, to choose one.

        Args:
            table: A file's path, or a frame, an array, a tensor or rows in memory.
            how: The columns, the method and the hierarchies.
            ks: The values of k, in addition to the goal's own.

        Returns:
            A point for each k.

        Raises:
            Refused: The table cannot be read, or has no such column.
        """
        named = [*how.quasi, *how.sensitive]
        table = self._read(table, named)
        table = blunted(table, [one for one in how.blunt if {*one.columns} <= {*named}])
        points = []
        for k in sorted({*ks, how.goal.k}):
            try:
                found = _recoded(table, how, _with_k(how.goal, k))
            except Refused as refused:
                points.append({"k": k, "refused": refused.cause})
                continue
            risks = risks_of(class_sizes(found.table, how.quasi))
            points.append({
                "k": k, "loss": found.loss, "highest": risks.prosecutor.highest,
                "found": risks.marketer, "suppressed": table.people - found.table.people,
            })  # fmt: skip
        return _for_the_owner({
            "guarantee": GUARANTEE, "method": how.method, "goal": how.goal.in_words,
            "chosen": how.goal.k, "points": points,
        })  # fmt: skip

    def leaks(
        self,
        original: TableFile | Tabular,
        look_alike: TableFile | Tabular,
        held_back: TableFile | Tabular | None,
    ) -> Json:
        """Measure what synthetic data kept of its original; owner-only (soundness rule 30).

        Args:
            original: The real table: a file's path, or rows in memory.
            look_alike: The synthetic table.
            held_back: Real rows that the synthetic table was not made from, to compare with.

        Returns:
            Measures of what was kept.

        Raises:
            Refused: A table cannot be read, or has other columns.
        """
        tables = [
            None if table is None else self._read(table)
            for table in (original, look_alike, held_back)
        ]
        real, made, rest = tables
        if real is None or made is None:
            raise Refused(
                "bad-request",
                "A leakage check needs two tables: the original and the look-alike.",
                "Name both tables.",
            )
        if rest is not None and not rest.rows:
            raise Refused(
                "bad-request",
                "The table of held-back rows (rows that the look-alike was not made from) is "
                "empty.",
                "Name a table that has rows, or leave this table out.",
            )
        return _for_the_owner(leaks_json(leaks(real, made, rest)))


def _recoded(table: Table, how: Recoding, goal: Goal) -> Recoded:
    way = RecodingSettings(_hierarchies(table, how), goal, how.sensitive)
    recode: dict[str, Callable[[], Recoded]] = {
        "global": lambda: recode_globally(table, way, how.suppress),
        "local": lambda: recode_by_class(table, way),
        "mondrian": lambda: recode_mondrian(table, way),
    }
    if how.method not in recode:
        raise Refused(
            "bad-request",
            f"{how.method!r} is not a recoding method.",
            f"Use one of {', '.join(METHODS)}.",
        )
    _check_possible(table, goal, how.sensitive)
    return recode[how.method]()


def _check_possible(table: Table, goal: Goal, sensitive: Sequence[str]) -> None:
    """Refuse at once a goal that the table could not reach even as one single class."""
    most = min((len(column.values) for column in table.of(sensitive)), default=0)
    if goal.k > table.people > 0:
        says = f"k = {goal.k:,} is more than the table's {table.people:,} rows"
    elif sensitive and goal.l is not None and goal.l > most:
        says = f"l = {goal.l:,} is more than the {most:,} values of a sensitive column"
    else:
        return
    raise Refused(
        "out-of-reach", f"{says} (these counts are for the owner only).", "Choose a smaller k or l."
    )


def _hierarchies(table: Table, how: Recoding) -> dict[str, Hierarchy]:
    made = {}
    for column in table.of(how.quasi):
        made[column.name] = built(column, how.rules.get(column.name) or proposed(column))
    return made


def _check_rules(how: Recoding) -> None:
    """Refuse a hierarchy whose column name is a quasi-identifier's, but for case or outer blanks.

    It is accepted if the quasi-identifier itself has a hierarchy, too.
    """
    of_small = {name.casefold(): name for name in how.quasi}
    for name in how.rules:
        meant = of_small.get(name.strip().casefold(), name)
        if meant != name and meant not in how.rules:
            raise Refused(
                "bad-request",
                f"There is a hierarchy of {name!r}, but the column is named {meant!r}.",
                "Write both names with the same upper and lower case. Otherwise, the given "
                "hierarchy would not be used.",
                column=meant,
            )


def _rules_said(how: Recoding) -> Json:
    """Return which columns have given, and which have proposed, generalisation hierarchies.

    The result also names the given hierarchies that no quasi-identifier uses.
    """
    return {
        "given": [name for name in how.quasi if name in how.rules],
        "proposed": [name for name in how.quasi if name not in how.rules],
        "unused": [name for name in how.rules if name not in how.quasi],
    }


def _check_apart(how: Recoding) -> None:
    named = [*how.quasi, *how.sensitive, *how.keep, *how.names]
    twice = sorted({name for name in named if named.count(name) > 1})
    if how.suppress and how.method != "global":
        raise Refused(
            "bad-request",
            f"Recoding by {how.method!r} cannot suppress rows.",
            "Leave the suppression limit out, or use a global recoding method.",
        )
    if not twice and how.quasi and 0 <= how.suppress < 1:
        return
    raise Refused(
        "bad-request",
        _fault(how, twice),
        "Name at least one quasi-identifier. Name each column once: as a quasi-identifier, as "
        "sensitive, to keep, or for pseudonyms. Suppress fewer than all rows.",
    )


def _fault(how: Recoding, twice: Sequence[str]) -> str:
    if twice:
        return f"{twice[0]!r} is named more than once."
    if not how.quasi:
        return "No quasi-identifier is named."
    return "The share of rows to suppress must be at least 0 and less than 1."


def _with_pseudonyms(table: Table, how: Recoding) -> Table:
    columns = dict(table.columns)
    for column in table.of(how.names):
        pairs = zip(column.values, column.written, strict=True)
        texts = ["" if value is None else text for value, text in pairs]
        columns[column.name] = replaced(column, pseudonyms(texts, how.key, column.name))
    return Table(columns, table.rows, table.weights)


def _with_k(goal: Goal, k: int) -> Goal:
    return replace(goal, k=k)


def _learnt_json(table: Table, found: Recoded, how: Recoding) -> Json:
    made = {name: learnt(table, found, how.quasi, name) for name in how.sensitive}
    return {
        name: {"before": one.before, "after": one.after, "guessing": one.guessing}
        for name, one in made.items()
    }


def _for_the_owner(shape: Json) -> Json:
    return {"for": OWNER_ONLY, **shape}
