"""The console's routes: one for each page, behind checks of origin, CSRF and session."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import quote

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from sfumato.dp.refusal import Refused
from sfumato.features.access import sign_in_pages, token_pages, user_pages
from sfumato.features.airlock import pages as airlock_pages
from sfumato.features.audit import pages as audit_pages
from sfumato.features.data_sets import amend_pages, append_pages, upload_pages
from sfumato.features.data_sets import pages as data_sets_pages
from sfumato.features.federated import pages as federated_pages
from sfumato.features.jobs import pages as jobs_pages
from sfumato.features.pipelines import image_request_pages, review_pages, run_pages
from sfumato.features.pipelines import pages as pipelines_pages
from sfumato.features.policy import pages as policy_pages
from sfumato.features.queries import answer_pages
from sfumato.features.queries import pages as queries_pages
from sfumato.features.surveys import pages as surveys_pages
from sfumato.features.surveys import respondent_pages
from sfumato.features.synthetic import pages as synthetic_pages
from sfumato.server.console import lab_pages
from sfumato.server.console.forms import read_form
from sfumato.server.console.page import Page
from sfumato.server.console.refusal_text import for_pages
from sfumato.server.console.session import UNSAFE, check_csrf, check_origin, token_of
from sfumato.server.console.templates_renderer import Renderer
from sfumato.server.console.visit import NOBODY, Visit, is_known, unknown_page
from sfumato.server.ipc.body_drain import drain_body
from sfumato.server.ipc.edge_client import DoorConnection
from sfumato.wire.http_status import STATUS
from sfumato.wire.query_json import refusal_shape

Endpoint = Callable[[Request], Awaitable[Response]]
PAGES: Final[tuple[Page, ...]] = (
    *sign_in_pages.PAGES,
    *data_sets_pages.PAGES,
    *synthetic_pages.PAGES,
    *airlock_pages.PAGES,
    *pipelines_pages.PAGES,
    *run_pages.PAGES,
    *review_pages.PAGES,
    *image_request_pages.PAGES,
    *federated_pages.PAGES,
    *queries_pages.PAGES,
    *answer_pages.PAGES,
    *audit_pages.PAGES,
    *policy_pages.PAGES,
    *amend_pages.PAGES,
    *append_pages.PAGES,
    *upload_pages.PAGES,
    *jobs_pages.PAGES,
    *token_pages.PAGES,
    *user_pages.PAGES,
    *lab_pages.PAGES,
    *respondent_pages.PAGES,
    *surveys_pages.PAGES,
)


@dataclass(frozen=True)
class Console:
    """The console: the connection to the door process (which owns the vault), and the templates."""

    line: DoorConnection
    paper: Renderer
    draw: Callable[[int], bytes]  # random bytes, for operation ids

    def routes(self) -> list[Route]:
        """Return a route for each page whose API verbs this service has, and for static files."""
        return self._routes([page for page in PAGES if all(map(is_known, page.verbs))])

    def lab_routes(self) -> list[Route]:
        """Return the routes of the lab's pages, which need no sign-in and show synthetic data."""
        return self._routes([replace(page, is_open=True) for page in lab_pages.PAGES])

    def _routes(self, pages: Sequence[Page]) -> list[Route]:
        routes = [Route(p.path, self._endpoint(p), methods=[p.method]) for p in pages]
        files = [
            Route("/static/{digest}/{name}", self._static, methods=["GET"]),
            # needed by a picture that is opened on a page of its own
            Route("/favicon.ico", self._mark, methods=["GET"]),
        ]
        return [*routes, *files]

    def refused(self, refused: Refused, status: int) -> Response:
        """Return an error page that shows a refusal: its cause, and the next step."""
        values = {"refused": refused, "me": NOBODY, "csrf": "", "path": ""}
        return self.paper.page("error.html", status, **values)

    def _endpoint(self, page: Page) -> Endpoint:
        async def endpoint(request: Request) -> Response:
            visit = Visit(request, self.line, self.paper, self.draw)
            try:
                visit = await _admitted(page, visit)
                return await page.shown(visit)
            except Refused as refused:
                kept = refused
            except ClientDisconnect:  # the client is gone
                return Response(status_code=400)
            if page.takes_a_file:  # a file may be endless, so drain it up to a limit
                await drain_body(request.stream())
            return _refused_at(page, visit, kept)

        return endpoint

    async def _mark(self, _request: Request) -> Response:
        found = self.paper.file(self.paper.digest, "mark.svg")
        return self.refused(unknown_page(), 404) if found is None else found

    async def _static(self, request: Request) -> Response:
        place = request.path_params
        found = self.paper.file(place["digest"], place["name"])
        return self.refused(unknown_page(), 404) if found is None else found


def _refused_at(page: Page, visit: Visit, refused: Refused) -> Response:
    if page.is_for_script:
        headers = {"Connection": "close"} if page.takes_a_file else None
        return JSONResponse(refusal_shape(for_pages(refused)), STATUS[refused.code], headers)
    if refused.code == "not-signed-in":
        wanted = visit.request.url.path if visit.request.method == "GET" else "/"
        return visit.go(f"/sign-in?next={quote(wanted)}")
    return visit.page("error.html", refused)


async def _admitted(page: Page, visit: Visit) -> Visit:
    """Check the request's origin, CSRF token and session; return the visit with its form and user.

    A form is parsed only if it came from one of our own pages.
    """
    if page.method in UNSAFE:
        check_origin(visit.request)
    if page.method in UNSAFE and not page.takes_a_file:
        visit = replace(visit, form=await read_form(visit.request))
    if page.is_open:
        return visit
    visit = replace(visit, token=token_of(visit.request))
    if page.method in UNSAFE:
        in_header = visit.request.headers.get("x-csrf", "")
        check_csrf(visit.token, in_header if page.takes_a_file else visit.form.text("csrf"))
    return replace(visit, me=await visit.call("me"))
