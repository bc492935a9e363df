"""Texts that run as a script on a page that does not escape them; N is the number of the text.

Each calls `hit(N)`, which the browser brings along. `CARELESS` is the page that does not escape.
"""

from __future__ import annotations

from html.parser import HTMLParser

_TEXTS = (
    "<script>hit(N)</script>",
    "<img src=x onerror=hit(N)>",
    "<svg onload=hit(N)>",
    '"><script>hit(N)</script>',
    "'><script>hit(N)</script>",
    '"><img src=x onerror=hit(N)>',
    "'><img src=x onerror=hit(N)>",
    '" autofocus onfocus=hit(N) x="',
    "' autofocus onfocus=hit(N) x='",
    "x autofocus onfocus=hit(N)",
    "</title><script>hit(N)</script>",
    "</textarea><script>hit(N)</script>",
    "</style><img src=x onerror=hit(N)>",
    "</script><script>hit(N)</script>",
    "--><script>hit(N)</script>",
    "';hit(N);//",
    '";hit(N);//',
    "'-hit(N)-'",
    '"-hit(N)-"',
    "`-hit(N)-`",
    "${hit(N)}",
    "javascript:top.hit(N)",
    "JaVaScRiPt:top.hit(N)",
    "javascript://%0atop.hit(N)",
    "<iframe src=javascript:top.hit(N)>",
    "<iframe srcdoc='<script>top.hit(N)</script>'>",
    "<details open ontoggle=hit(N)>",
    "<input autofocus onfocus=hit(N)>",
    "<select autofocus onfocus=hit(N)>",
    "<textarea autofocus onfocus=hit(N)>",
    "<video><source onerror=hit(N)></video>",
    "<audio src=x onerror=hit(N)>",
    "<object data=javascript:top.hit(N)><img src=x onerror=hit(N)></object>",
    "<svg><script>hit(N)</script></svg>",
    "<svg><animate onbegin=hit(N) attributeName=x dur=1s>",
    "<math><mtext></p><img src=x onerror=hit(N)></math>",
    "<IMG SRC=x oNeRrOr=hit(N)>",
    "<img src=x onerror=&#104;it(N)>",
    "<body onpageshow=hit(N)><img src=x onerror=hit(N)>",
    "<style>@keyframes x{}</style><b style='animation-name:x' onanimationstart=hit(N)>b</b>",
)
TEXTS = tuple(text.replace("(N)", f"({number})") for number, text in enumerate(_TEXTS))

CARELESS = """<!DOCTYPE html><html><head><title>{0}</title></head><body>
<p>{0}</p><!-- {0} -->
<input value="{0}"><input value='{0}'><input value={0}>
<textarea>{0}</textarea><iframe src="{0}"></iframe>
<script>var one = '{0}';</script><script>var two = "{0}";</script>
<script>var three = `{0}`;</script>
</body></html>"""


class Harm(HTMLParser):
    """Finds what a browser would run on a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        said = {name: (value or "").strip().casefold() for name, value in attrs}
        is_ours = tag == "script" and said.get("src", "").startswith("/static/")
        if tag in ("script", "iframe", "object", "embed", "style") and not is_ours:
            self.found.append(tag)
        self.found += [
            name for name in said if name.startswith("on") or name in ("style", "srcdoc")
        ]
        places = (said.get(name, "") for name in ("href", "src", "action", "formaction", "data"))
        self.found += [place for place in places if place.startswith(("javascript:", "data:"))]


def harm_on(page: str) -> list[str]:
    """Return what a browser would run on the page, but for scripts of ours."""
    reader = Harm()
    reader.feed(page)
    reader.close()
    return reader.found
