"""QR codes as SVG without script, style or fixed size, made by segno."""

from __future__ import annotations

import io

import segno
from markupsafe import Markup
from starlette.requests import Request


def address_of(request: Request, survey: str) -> str:
    """Return the URL of the survey's form, with the scheme and host of this request."""
    return f"{request.url.scheme}://{request.headers['host']}/s/{survey}"


def qr_of(address: str) -> Markup:
    """Return a QR code of the URL as SVG; the code stays readable with a quarter of it damaged."""
    made = io.BytesIO()
    code = segno.make(address, error="q", micro=False, boost_error=False)
    code.save(
        made, kind="svg", xmldecl=False, svgns=False, omitsize=True, nl=False, svgclass="qr",
        lineclass=None, title="QR code of this survey's address",
    )  # fmt: skip
    return Markup(made.getvalue().decode("ascii"))  # noqa: S704  # of digits, letters and paths
