"""Excel workbooks written by hand, as the standard lays them out."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence
from html import escape

_MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_DOCUMENT = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006/relationships"
_HEAD = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'


def workbook(sheets: Mapping[str, Sequence[Sequence[object]]]) -> bytes:
    """Return a workbook with these rows; texts are shared, as Excel writes them."""
    texts: list[str] = []
    return archive({
        **frame(list(sheets)),
        **{
            f"xl/worksheets/sheet{place}.xml": sheet_xml(rows, texts)
            for place, rows in enumerate(sheets.values(), 1)
        },
        "xl/sharedStrings.xml": shared_xml(texts),
    })  # fmt: skip


def frame(names: Sequence[str]) -> dict[str, str]:
    """Return the parts of a workbook that list its sheets, and link to them."""
    places = range(1, len(names) + 1)
    sheets = "".join(
        f'<sheet name="{escape(name)}" sheetId="{place}" r:id="rId{place}"/>'
        for place, name in zip(places, names, strict=True)
    )
    links = "".join(
        f'<Relationship Id="rId{place}" Type="{_DOCUMENT}/worksheet" '
        f'Target="worksheets/sheet{place}.xml"/>'
        for place in places
    )
    return {
        "xl/workbook.xml": (
            f'{_HEAD}<workbook xmlns="{_MAIN}" xmlns:r="{_DOCUMENT}"><sheets>{sheets}</sheets>'
            "</workbook>"
        ),
        "xl/_rels/workbook.xml.rels": (
            f'{_HEAD}<Relationships xmlns="{_PACKAGE}">{links}</Relationships>'
        ),
    }


def sheet_xml(rows: Sequence[Sequence[object]], texts: list[str]) -> str:
    """Return a sheet with these rows; its texts are appended to `texts`."""
    lines = []
    for place, row in enumerate(rows, 1):
        cells = "".join(
            _cell(f"{chr(65 + column)}{place}", value, texts)
            for column, value in enumerate(row)
            if value is not None
        )
        lines.append(f'<row r="{place}">{cells}</row>')
    return f'{_HEAD}<worksheet xmlns="{_MAIN}"><sheetData>{"".join(lines)}</sheetData></worksheet>'


def _cell(name: str, value: object, texts: list[str]) -> str:
    if isinstance(value, bool):
        return f'<c r="{name}" t="b"><v>{int(value)}</v></c>'
    if isinstance(value, str):
        texts.append(value)
        return f'<c r="{name}" t="s"><v>{len(texts) - 1}</v></c>'
    return f'<c r="{name}"><v>{value!r}</v></c>'


def shared_xml(texts: Sequence[str]) -> str:
    """Return the part with the texts that cells share."""
    items = "".join(f"<si><t>{escape(text)}</t></si>" for text in texts)
    return f'{_HEAD}<sst xmlns="{_MAIN}">{items}</sst>'


def archive(parts: Mapping[str, str | bytes], how: int = zipfile.ZIP_DEFLATED) -> bytes:
    """Return a zip archive of these parts."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", how) as made:
        for name, text in parts.items():
            made.writestr(name, text)
    return file.getvalue()
