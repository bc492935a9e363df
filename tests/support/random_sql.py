"""Random SQL over three small tables: joins, inner SELECTs, stars, and names that mean two things.

Most of what is written is answered by the house and by plain SQL alike; some only by one of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Final

TABLES: Final = {
    "clinic": {"who": "person", "zip": "whole", "age": "whole", "sex": "text"},
    "visits": {"who": "person", "ward": "text", "cost": "whole", "zip": "whole", "age": "whole"},
    "zips": {"zip": "whole", "age": "whole", "region": "text"},
}
KEYS: Final = {"sex": ("f", "m"), "ward": ("a", "b"), "region": ("n", "s")}
TOP: Final = {"zip": 5, "age": 20, "cost": 30}
_NAMES: Final = ("age", "zip", "cost", "x", "n", "region", "ward", "who", "clinic", "v", "k")
_CALLED: Final = ("v", "c", "clinic", "visits", "zips", "t", "age")


@dataclass(frozen=True)
class Relation:
    """Something that stands in FROM: its text, its name there, its columns, what it is made of."""

    sql: str
    name: str
    columns: dict[str, str]
    of: str


@dataclass
class Writer:
    """Writes questions by chance, and remembers the names of WITH."""

    draw: Random
    known: list[Relation] = field(default_factory=list)
    used: set[str] = field(default_factory=set)

    def question(self) -> tuple[str, int]:
        """Return a text, and how many keys its answer has."""
        chance = self.draw.random()
        withs = [self._with(name) for name in self.draw.sample(("a", "b", "zips"), 2)]
        some = withs[: self.draw.choices((0, 1, 2), (5, 3, 2))[0]]
        self.known = [relation for relation, _ in some]
        source, scope = self._people() if chance < 0.2 else self._from(1)
        items, grouping = self._keys(scope)
        keys = len(items)
        items += [self._aggregate(scope) for _ in range(self.draw.randint(1, 3))]
        needed = [text for relation, text in some if relation.name in self.used]
        before = "WITH " + ", ".join(needed) + " " if needed else ""
        return f"{before}SELECT {', '.join(items)} {source}{self._where(scope)}{grouping}", keys

    # --- tables -----------------------------------------------------------------------------------

    def _with(self, name: str) -> tuple[Relation, str]:
        inner = self._inner(0)
        return Relation(name, name, inner.columns, inner.of), f"{name} AS ({inner.sql})"

    def _relation(self, depth: int, of: str) -> Relation:
        known = [relation for relation in self.known if relation.of == of]
        called = self.draw.choice(_CALLED) if self.draw.random() < 0.5 else ""
        if known and self.draw.random() < 0.6:
            found = self.draw.choice(known)
            self.used.add(found.name)
        elif depth and self.draw.random() < 0.5:
            made = self._inner(depth - 1, of)
            called = called or "t"
            found = Relation(f"({made.sql})", "", made.columns, of)
        else:
            found = Relation(self._spelt(of), of, TABLES[of], of)
        text = f"{found.sql} {called}" if called else found.sql
        return Relation(text, called or found.name, found.columns, of)

    def _from(self, depth: int) -> tuple[str, list[Relation]]:
        others = self.draw.sample(tuple(TABLES), 3)
        first = next(name for name in others if name != "zips")
        scope = [self._relation(depth, first)]
        text = f"FROM {scope[0].sql}"
        for of in [name for name in others if name != first][: self.draw.choice((0, 1, 1, 2))]:
            joined = self._relation(depth, of)
            if joined.name in {relation.name for relation in scope}:
                continue  # which is refused, and told nothing new
            on = self._on(scope, joined)
            if on:
                side = self.draw.choice(("JOIN", "LEFT JOIN"))
                text += f" {side} {joined.sql} {on}"
                scope.append(joined)
        return text, scope

    def _on(self, scope: list[Relation], joined: Relation) -> str:
        kind = "whole" if joined.of == "zips" else "person"
        mine = [c for c, of in joined.columns.items() if of == kind]
        theirs = [(r.name, c) for r in scope for c, of in r.columns.items() if of == kind]
        if not mine or not theirs:
            return ""
        right = "zip" if "zip" in mine and kind == "whole" else self.draw.choice(mine)
        name, left = self.draw.choice(theirs)
        also = self._also(scope, joined) if kind == "person" else []
        if left == right and self.draw.random() < 0.5:
            both = [column for _, column, own in also if column == own]
            return f"USING ({', '.join(dict.fromkeys([left, *both]))})"
        pairs = [(name, left, right), *also]
        self.draw.shuffle(pairs)
        return "ON " + " AND ".join(
            f"{of}.{column} = {joined.name}.{self._spelt(own)}" for of, column, own in pairs
        )

    def _also(self, scope: list[Relation], joined: Relation) -> list[tuple[str, str, str]]:
        """Return what else is equal: a table before, its column, and the joined one's."""
        found = [
            (r.name, c, own)
            for r in scope
            for c, of in r.columns.items()
            for own, kind in joined.columns.items()
            if of == kind != "person" and (c == own or self.draw.random() < 0.2)
        ]
        return self.draw.sample(found, min(len(found), self.draw.choice((0, 0, 1, 1, 2))))

    def _inner(self, depth: int, of: str = "") -> Relation:
        """Return a SELECT of rows, some columns under other names, some computed."""
        table = self._relation(depth, of or self.draw.choice(tuple(TABLES)))
        text = f"FROM {table.sql}{self._where([table])}"
        if self.draw.random() < 0.2:
            return Relation(f"SELECT * {text}", "", table.columns, table.of)
        columns, items = {}, []
        for column in self._some(tuple(table.columns)):
            name = self.draw.choice(_NAMES) if self.draw.random() < 0.3 else column
            if name not in columns:
                columns[name] = table.columns[column]
                items.append(column if name == column else f"{column} AS {self._spelt(name)}")
        number, name = self._number([table]), self.draw.choice(_NAMES)
        if number and name not in columns and self.draw.random() < 0.4:
            columns[name] = "whole"
            items.append(f"{number} AS {name}")
        return Relation(f"SELECT {', '.join(items)} {text}", "", columns, table.of)

    def _some(self, names: tuple[str, ...]) -> list[str]:
        return self.draw.sample(names, self.draw.randint(1, min(3, len(names))))

    def _people(self) -> tuple[str, list[Relation]]:
        """Return a table with one row for each person, or two of them that are joined."""
        first = self._each("p")
        if self.draw.random() < 0.5:
            return self._looked_up(f"FROM {first.sql}", [first])
        other = self._each("q")
        one, two = (_person_of(relation) for relation in (first, other))
        on = f"ON p.{one} = q.{two}"
        if one == two and self.draw.random() < 0.4:
            on = f"USING ({one})"
        elif self.draw.random() < 0.3:
            on = f"ON q.{two} = p.{one}"
        side = self.draw.choice(("JOIN", "LEFT JOIN"))
        return self._looked_up(f"FROM {first.sql} {side} {other.sql} {on}", [first, other])

    def _looked_up(self, text: str, scope: list[Relation]) -> tuple[str, list[Relation]]:
        """Return tables of people as they are, or with a public one beside them."""
        name = self.draw.choice(("zips", "z", "v"))
        zips = Relation("zips" if name == "zips" else f"zips {name}", name, TABLES["zips"], "zips")
        on = self._on(scope, zips) if self.draw.random() < 0.6 else ""
        if not on:
            return text, scope
        side = self.draw.choice(("JOIN", "LEFT JOIN"))
        return f"{text} {side} {zips.sql} {on}", [*scope, zips]

    def _each(self, name: str) -> Relation:
        """Return a table with one row for each person."""
        source, scope = self._from(1)
        person = self._column(scope, "person") or "who"
        called = person.rpartition(".")[2].strip('"')
        items, columns = [person], {called: "person"}
        if self.draw.random() < 0.2:
            items, columns = [f"{person} AS k"], {"k": "person"}
        for column in self.draw.sample(
            [c for c in ("n", "age", "zip", "x") if c not in columns], 2
        ):
            items.append(f"{self._of_person(scope)} AS {column}")
            columns[column] = "whole"
        having = f" HAVING {self._of_person(scope)} > 1" if self.draw.random() < 0.2 else ""
        inner = f"SELECT {', '.join(items)} {source}{self._where(scope)} GROUP BY {person}{having}"
        return Relation(f"({inner}) AS {name}", name, columns, "")

    def _of_person(self, scope: list[Relation]) -> str:
        number = self._number(scope)
        whats = ["COUNT(*)", *(f"{f}({number})" for f in ("SUM", "MAX", "COUNT") if number)]
        whats += [f"MIN({number})"] if number else []
        if self.draw.random() < 0.1:
            return f"{self.draw.choice(whats)} + COUNT(*)"
        return self.draw.choice(whats)

    # --- columns ----------------------------------------------------------------------------------

    def _spelt(self, name: str) -> str:
        return self.draw.choices((name, name.upper(), f'"{name}"'), (8, 1, 1))[0]

    def _column(self, scope: list[Relation], kind: str) -> str:
        found = [(r.name, c) for r in scope for c, of in r.columns.items() if of == kind]
        if not found:
            return ""
        table, column = self.draw.choice(found)
        is_long = len(scope) > 1 or self.draw.random() < 0.3
        return f"{table}.{column}" if is_long and self.draw.random() < 0.9 else self._spelt(column)

    def _number(self, scope: list[Relation]) -> str:
        one, other = self._column(scope, "whole"), self._column(scope, "whole")
        if not one:
            return ""
        formulas = (one, one, one, f"{one} + {other}", f"{one} * 2 - {other}", f"FLOOR({one} / 4)",
                    f"COALESCE({one}, 3)", f"CASE WHEN {one} > 4 THEN {other} ELSE 7 END",
                    f"ABS({one} - 3)", f"NULLIF({one}, 3)")  # fmt: skip
        return self.draw.choice(formulas)

    def _condition(self, scope: list[Relation]) -> str:
        number, text = self._number(scope), self._column(scope, "text")
        if text and self.draw.random() < 0.3:
            return f"{text} {self.draw.choice(('=', '<>'))} '{self.draw.choice('abfmns')}'"
        if not number:
            return ""
        ends = ("IS NULL", "IS NOT NULL", "IN (1, 2, 7)", "BETWEEN 2 AND 9", "> 4", "<= 9", "<> 3")
        return f"{number} {self.draw.choice(ends)}"

    def _where(self, scope: list[Relation]) -> str:
        parts = [self._condition(scope) for _ in range(self.draw.choice((0, 0, 1, 2)))]
        kept = [part for part in parts if part]
        return " WHERE " + self.draw.choice((" AND ", " OR ")).join(kept) if kept else ""

    def _keys(self, scope: list[Relation]) -> tuple[list[str], str]:
        items, groups = [], []
        for place in range(1, 1 + self.draw.choice((0, 1, 1, 1, 2))):
            key = self._column(scope, "text") if self.draw.random() < 0.6 else self._number(scope)
            if not key:
                break
            name = self.draw.choice(_NAMES) if self.draw.random() < 0.5 else ""
            items.append(f"{key} AS {name}" if name else key)
            groups.append(self.draw.choice((key, str(place), name or key)))
        more = self._column(scope, "whole")
        if items and more and self.draw.random() < 0.3:
            items.append(more)
            groups.append(more)
        return items, f" GROUP BY {', '.join(groups)}" if items else ""

    def _aggregate(self, scope: list[Relation]) -> str:
        number, person = self._number(scope), self._column(scope, "person")
        condition = self._condition(scope)
        whats = ["COUNT(*)"]
        whats += [f"SUM({number})", f"COUNT({number})"] if number else []
        whats += [f"COUNT(DISTINCT {person})"] if person else []
        whats += [f"COUNT(*) FILTER (WHERE {condition})"] if condition else []
        name = f" AS {self.draw.choice(_NAMES)}" if self.draw.random() < 0.3 else ""
        return self.draw.choice(whats) + name


def _person_of(relation: Relation) -> str:
    return next(name for name, kind in relation.columns.items() if kind == "person")
