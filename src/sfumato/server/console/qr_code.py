"""QR codes as pictures without script, style or size of their own; segno works them out."""

from __future__ import annotations

import io

import segno
from markupsafe import Markup
from starlette.requests import Request


def address_of(request: Request, survey: str) -> str:
    """Return where the survey is, as whoever asks has reached this house."""
    return f"{request.url.scheme}://{request.headers['host']}/s/{survey}"


def qr_of(address: str) -> Markup:
    """Return the address as a picture; a quarter of it may be dirty (error correction Q)."""
    made = io.BytesIO()
    code = segno.make(address, error="q", micro=False, boost_error=False)
    code.save(
        made, kind="svg", xmldecl=False, svgns=False, omitsize=True, nl=False, svgclass="qr",
        lineclass=None, title="QR code of this survey's address",
    )  # fmt: skip
    return Markup(made.getvalue().decode("ascii"))  # noqa: S704  # of digits, letters and paths
