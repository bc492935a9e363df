"""The objects of one caller at a site's worker: values of what was sent, and shapes of everything.

Two stores receive the same requests. One has values: what the caller sent, and what is computed
from it. The other has only shapes (PyTorch's `meta` device) of everything. That includes the site's
tables, with the shape that their card declares. After the first use of a table, only shapes are
computed. The site's rows are not in this process, so no failure here can reveal one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import torch

from sfumato.dp.refusal import Refused
from sfumato.features.federated.tensors.object_store import Store
from sfumato.features.federated.tensors.operations import IN_PLACE
from sfumato.features.federated.tensors.tensor_messages import Reference, decode, encode, malformed
from sfumato.features.federated.tensors.worker import TABLE

ALL: Final = slice(None)
MAX_GIVEN: Final = 64 << 20
REDUCED: Final = ("mean", "sum")


@dataclass(frozen=True)
class Source:
    """Where an object comes from: columns of a site's table, or the columns' sums or means.

    With a source, the vault can release the object by a query; other objects are never released.
    """

    table: str
    columns: tuple[str, ...]
    how: str | None = None
    is_one: bool = False  # a single column (1-d), not a one-column table

    def words(self) -> dict[str, Any]:
        """Return the table, the columns and the reduction as a dictionary, for a message."""
        columns, is_one = list(self.columns), self.is_one
        return {"table": self.table, "columns": columns, "how": self.how, "is_one": is_one}


class SiteStore:
    """One caller's objects at a site's worker, as values and shapes; handles encoded messages."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._shapes, self._values = Store({}), Store({})
        self._sources: dict[str, Source] = {}

    def declare(self, name: str, rows: int, columns: tuple[str, ...]) -> bytes:
        """Add a table by its declared shape; return its description for the client."""
        shape = torch.empty((rows, len(columns)), device="meta")
        self._shapes.declare(name, shape)
        self._sources[TABLE + name] = Source(name, columns)
        return encode({"said": self._shapes.do({"do": "table", "name": name})})

    def handle(self, message: bytes) -> bytes:
        """Return the reply to a message: an answer, or a refusal."""
        try:
            words = decode(message)
            if not isinstance(words, dict):
                raise malformed("it has no such request")
            self._drop(words.pop("dropped", ()))
            with torch.set_grad_enabled(words.pop("grads", True) is True):  # the caller's grad mode
                said = self._do(words)
            return encode({"said": said})
        except Refused as refusal:
            return encode({"refused": [refusal.code, refusal.cause, refusal.next_step]})

    def _do(self, words: Any) -> Any:  # Any: JSON
        match words:
            case {"do": "get", "key": str(key)}:
                return self._give(key)
            case {"do": "source", "key": str(key)}:
                return self._source(key)
            case {"do": "clear"}:
                self._forget_sources()
                self._values.do(words)
                return self._shapes.do(words)
            case {"do": "list" | "label" | "labels" | "search"}:
                return self._shapes.do(words)
            case {"do": "table" | "train"}:
                raise malformed("it has no such request")
            case {"do": "put", "value": torch.Tensor() as value}:
                return self._put(words, value)
        return self._both(words)

    def _put(self, words: Any, value: torch.Tensor) -> Any:
        """Store a tensor that the caller sent; allowed also after a table was used."""
        self._check_room(self._values.bytes_held() + value.nbytes)
        told = self._shapes.do({**words, "value": _shape_of(value)})
        self._values.last = self._shapes.last - 1
        self._values.do(words)
        return told

    def _check_room(self, bytes_held: int) -> None:
        if bytes_held > self._most_bytes:
            raise malformed("it would hold more than its owner allows; clear some objects")

    def _both(self, words: Any) -> Any:
        """Run the request in both stores: on values, and on shapes alone.

        After a failure, or if the objects take too much memory, delete the new objects.
        """
        before = self._shapes.last
        told = self._shapes.do(words)
        self._note_source(words, told)
        if self._shapes.is_touched:
            return told
        try:
            self._check_room(self._shapes.bytes_held())
            self._values.last = before
            if _plain(self._values.do(words)) != _plain(told):
                raise malformed("the operation gave another result than its shapes predict")
        except Refused as refusal:
            wrong = refusal
        else:
            return told
        self._drop([f"{number}" for number in range(before + 1, self._shapes.last + 1)])
        raise wrong

    def _give(self, key: str) -> torch.Tensor:
        self._shapes.check_free(key)
        if self._values.bytes_of(key) > MAX_GIVEN:
            raise malformed(f"more than {MAX_GIVEN >> 20} MB cannot be sent at once; use slices")
        given = self._values.do({"do": "get", "key": key})
        self._drop([key])
        if not isinstance(given, torch.Tensor):
            raise malformed("it has no such request")
        return given

    def _drop(self, keys: Any) -> None:
        if not isinstance(keys, list | tuple) or not all(isinstance(key, str) for key in keys):
            raise malformed("it has no such request")
        for key in keys:
            if not key.startswith(TABLE):
                self._sources.pop(key, None)
            for store in (self._shapes, self._values):
                store.do({"do": "drop", "key": key})

    # --- what the vault could release ---------------------------------------------------------

    def _source(self, key: str) -> Any:
        found = self._sources.get(key)
        if found is None or found.how is None:
            raise Refused(
                "remote-private",
                "The site can release only sums and means of a table's columns, and this value "
                "is neither.",
                "Ask the site's vault in SQL, or let sites train (docs/how-to/federated.md).",
            )
        return found.words()

    def _note_source(self, words: Any, told: Any) -> None:
        """Record which table columns a result comes from, if the vault could release the result."""
        match words, told:
            case (
                {"do": "call", "name": str(name), "args": (Reference() as of, *rest),
                 "named": dict(named)},
                {"key": Reference() as made},
            ):  # fmt: skip
                if name in IN_PLACE:
                    self._forget_written(made.key)
                    return
                found = self._sources.get(of.key)
                source = None if found is None else _derived(found, name, tuple(rest), named)
                if source is not None:
                    self._sources[made.key] = source
            case {"do": "set grad", "to": Reference() as to}, _:
                self._forget_written(to.key)  # autograd adds later gradients in place

    def _forget_written(self, key: str) -> None:
        """Forget the source columns of a written object, and of all that share its memory."""
        for one in self._shapes.sharing(key):
            if not one.startswith(TABLE):
                self._sources.pop(one, None)

    def _forget_sources(self) -> None:
        """Forget which table columns the objects came from, as all objects are being deleted.

        The sources of the tables themselves stay.
        """
        self._sources = {k: s for k, s in self._sources.items() if k.startswith(TABLE)}


def _derived(of: Source, name: str, args: tuple[Any, ...], named: dict[str, Any]) -> Source | None:
    """Return the source columns of an operation's result; None if no release can give the result.

    `of` is the source of the operation's first argument.
    """
    if of.how is not None:
        return None
    if name == "__getitem__" and not named:
        return _columns(of, args)
    if name in REDUCED and (args, named) in ALONG[of.is_one]:
        return Source(of.table, of.columns, name, of.is_one)
    return None


# keyed by is_one: arguments of a reduction over the rows only
ALONG: Final[dict[bool, tuple[tuple[tuple[Any, ...], dict[str, Any]], ...]]] = {
    False: (((0,), {}), ((), {"dim": 0})),
    True: (((), {}), ((0,), {}), ((), {"dim": 0})),
}


def _columns(of: Source, args: tuple[Any, ...]) -> Source | None:
    match args:
        case ((slice() as rows, int(place)),) if _is_column(rows, place, of):
            return Source(of.table, (of.columns[place],), None, is_one=True)
        case ((slice() as rows, slice() as places),) if rows == ALL and not of.is_one:
            return Source(of.table, of.columns[places])
    return None


def _is_column(rows: slice, place: int, of: Source) -> bool:
    """Return True if an index selects one column of all rows.

    A `True` in place of the column number would add a dimension instead.
    """
    return rows == ALL and not of.is_one and not isinstance(place, bool)


def _shape_of(value: torch.Tensor) -> torch.Tensor:
    made = torch.empty(value.shape, dtype=value.dtype, device="meta")
    return made.requires_grad_(value.requires_grad)


def _plain(told: Any) -> Any:
    """Return a store's reply with keys in place of references.

    So the replies of the store of values and of the store of shapes can be compared.
    """
    match told:
        case Reference():
            return told.key
        case list():
            return [_plain(part) for part in told]
        case dict():
            return {key: _plain(part) for key, part in told.items()}
    return told
