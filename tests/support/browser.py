"""A real Chromium for tests, and pages that tell whatever went wrong on them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from playwright._impl._api_structures import SetCookieParam
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from support.served_vault import PASSWORD, Service

CHROMIUM = "/usr/bin/chromium"
ARGS = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
COOKIE = "__Host-sfumato"


@contextmanager
def chromium() -> Iterator[Browser]:
    """Run a browser until the block ends."""
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=ARGS)
        yield browser
        browser.close()


@dataclass
class Watched:
    """A page, with all that it complained of and every host that it asked for anything."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    hosts: set[str] = field(default_factory=set)

    def watch(self) -> Watched:
        """Begin to listen."""
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.hosts.add(urlsplit(request.url).netloc))
        self.page.on("console", lambda said: self._heard(said.type, said.text))
        return self

    def _heard(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.complaints.append(f"{kind}: {text}")


def context_of(
    browser: Browser, service: Service, token: str = "", *, javascript: bool = True
) -> BrowserContext:
    """Return a fresh browser, signed in with the token if there is one."""
    context = browser.new_context(java_script_enabled=javascript)
    context.set_default_timeout(15_000)
    if token:
        bring(context, service, token)
    return context


def bring(context: BrowserContext, service: Service, token: str) -> None:
    """Sign the browser in with the token."""
    cookie: SetCookieParam = {
        "name": COOKIE,
        "value": token,
        "url": service.url.replace("http:", "https:"),
        "httpOnly": True,
        "secure": True,
        "sameSite": "Strict",
    }
    context.add_cookies([cookie])


def session_of(context: BrowserContext) -> str:
    """Return the token of the browser's session; "" where there is none."""
    found = [c.get("value", "") for c in context.cookies() if c.get("name") == COOKIE]
    return found[0] if found else ""


def take_up(page: Page, link: str, lands: str = "data-sets") -> None:
    """Open a welcome link, and set the password that all tests have."""
    page.goto(link)
    page.fill("#password", PASSWORD)
    page.fill("#again", PASSWORD)
    page.click("main button")
    page.wait_for_url(f"**/{lands}")


def sign_in(page: Page, service: Service, user: str) -> None:
    """Sign in by the form."""
    page.goto(f"{service.url}/sign-in")
    page.fill("#user", user)
    page.fill("#password", PASSWORD)
    page.click("main button")
