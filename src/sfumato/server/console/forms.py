"""What a form has sent: texts, read within limits; a form has no files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Final
from urllib.parse import parse_qsl

from starlette.requests import Request

from sfumato.dp.refusal import Refused
from sfumato.server.ipc.body_drain import drain_body
from sfumato.wire.json_text import bad_request

LARGEST: Final = 1024 * 1024
MOST_FIELDS: Final = 2400  # seven of each of 300 columns, and the rest of a card
LONGEST_NUMBER: Final = 60
URLENCODED: Final = "application/x-www-form-urlencoded"


@dataclass(frozen=True)
class Form:
    """The fields of a form, each with all that was sent for it."""

    fields: Mapping[str, Sequence[str]]

    def text(self, name: str) -> str:
        """Return the field without what stands around it, or nothing."""
        return self.raw(name).strip()

    def raw(self, name: str) -> str:
        """Return the field as it was typed: a password may begin with a space."""
        return self.fields.get(name, [""])[-1]

    def all(self, name: str) -> list[str]:
        """Return everything that was ticked."""
        return [value for value in self.fields.get(name, []) if value]

    def has(self, name: str) -> bool:
        """Say whether it was ticked."""
        return bool(self.text(name))

    def number(self, name: str) -> Decimal | None:
        """Return the number exactly as it was typed, or None where nothing was; or refuse."""
        typed = self.text(name)
        if not typed:
            return None
        try:
            read = Decimal(typed) if len(typed) <= LONGEST_NUMBER else None
        except InvalidOperation:
            read = None
        if read is None or not read.is_finite():
            raise Refused("bad-request", f"{name} is a number.", "Write it like 0.5.")
        return read

    def count(self, name: str) -> int | None:
        """Return the whole number that was typed, or None where nothing was; or refuse."""
        typed = self.text(name)
        if not typed:
            return None
        if not (typed.isascii() and typed.isdecimal() and len(typed) <= 15):
            raise Refused("bad-request", f"{name} is a whole number.", "Write it like 10.")
        return int(typed)


async def read_form(request: Request) -> Form:
    """Return the form that was sent, or refuse."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != URLENCODED:
        raise bad_request("a form is sent as " + URLENCODED)
    parts, size = [], 0
    body = request.stream()
    async for part in body:
        size += len(part)
        if size > LARGEST:
            await drain_body(body)
            raise Refused("too-large", "The form is larger than 1 MB.", "Send less.")
        parts.append(part)
    return _form(b"".join(parts))


def _form(text: bytes) -> Form:
    pairs: list[tuple[str, str]] | None
    try:
        pairs = parse_qsl(
            text.decode("utf-8"),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=MOST_FIELDS,
        )
    except ValueError:
        pairs = None
    if pairs is None:
        raise bad_request("the form cannot be read")
    fields: dict[str, list[str]] = {}
    for name, value in pairs:
        fields.setdefault(name, []).append(value.replace("\r\n", "\n"))
    return Form(fields)
