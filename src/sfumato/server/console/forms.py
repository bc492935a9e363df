"""Parse URL-encoded form fields within limits; forms contain no files."""

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
MOST_FIELDS: Final = 3200  # the most fields: ten for each of 300 columns, and the rest of a card
LONGEST_NUMBER: Final = 60
URLENCODED: Final = "application/x-www-form-urlencoded"


@dataclass(frozen=True)
class Form:
    """The fields of a submitted form; each may have several values."""

    fields: Mapping[str, Sequence[str]]

    def text(self, name: str) -> str:
        """Return the last value of a form field without surrounding spaces.

        Empty if it is missing.
        """
        return self.raw(name).strip()

    def raw(self, name: str) -> str:
        """Return the last value of a form field unchanged, as a password may begin with a space."""
        return self.fields.get(name, [""])[-1]

    def all(self, name: str) -> list[str]:
        """Return all non-empty values of a form field, such as ticked boxes."""
        return [value for value in self.fields.get(name, []) if value]

    def has(self, name: str) -> bool:
        """Return True if a form field is not empty, such as a ticked box."""
        return bool(self.text(name))

    def number(self, name: str) -> Decimal | None:
        """Parse a form field as an exact decimal; None if it is empty; refuse any other text."""
        typed = self.text(name)
        if not typed:
            return None
        try:
            read = Decimal(typed) if len(typed) <= LONGEST_NUMBER else None
        except InvalidOperation:
            read = None
        if read is None or not read.is_finite():
            raise Refused("bad-request", f"{name} must be a number.", "Write it like 0.5.")
        return read

    def count(self, name: str) -> int | None:
        """Parse a form field as a whole number; None if it is empty; refuse any other text."""
        typed = self.text(name)
        if not typed:
            return None
        if not (typed.isascii() and typed.isdecimal() and len(typed) <= 15):
            raise Refused("bad-request", f"{name} must be a whole number.", "Write it like 10.")
        return int(typed)


async def read_form(request: Request) -> Form:
    """Read and parse a submitted form; refuse a form that is too large or malformed."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != URLENCODED:
        raise bad_request("a form is sent as " + URLENCODED)
    parts, size = [], 0
    body = request.stream()
    async for part in body:
        size += len(part)
        if size > LARGEST:
            await drain_body(body)
            raise Refused(
                "too-large", "The form is larger than 1 MB.", "Shorten the texts in the form."
            )
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
