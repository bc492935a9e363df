"""The query page: write a query, see its price and expected error, and run it."""

from __future__ import annotations

import asyncio
from typing import Any, Final
from urllib.parse import quote

from starlette.responses import JSONResponse, Response

from sfumato.client.display import Price, assumed_words
from sfumato.dp.refusal import Refused
from sfumato.features.data_sets.pages import Account, Shape, accounts_of
from sfumato.server.console.forms import Form
from sfumato.server.console.number_text import error_words, plain_number
from sfumato.server.console.page import Page
from sfumato.server.console.refusal_text import for_pages, in_pages
from sfumato.server.console.visit import Said, Visit
from sfumato.wire.json_text import bad_request
from sfumato.wire.query_json import refusal_shape

FIRST: Final = "0.1"  # the epsilon that the empty form proposes
WORDS: Final = (
    "SELECT", "FROM", "WHERE", "GROUP BY", "HAVING", "ORDER BY", "LIMIT", "AND", "OR", "NOT", "IN",
    "BETWEEN", "AS", "COUNT(*)", "COUNT(DISTINCT ", "SUM(", "AVG(", "MEDIAN(", "MIN(", "MAX(",
    "STDDEV(", "STDDEV_POP(", "VAR_SAMP(", "VAR_POP(", "CORR(", "COVAR_SAMP(", "COVAR_POP(",
    "REGR_SLOPE(", "REGR_INTERCEPT(", "PERCENTILE_CONT(", "APPROX_TOP_K(", "RUNNING_COUNT(",
    "BOUNDS(", "FIRST_ABOVE(", "CASE WHEN", "THEN", "ELSE", "END",
)  # fmt: skip


async def form(visit: Visit) -> Response:
    """Show the form in which a user writes a query and its epsilon."""
    return await ask_page(visit, None, None)


async def price(visit: Visit) -> Response:
    """Show the query form with a price, for browsers without scripts; nothing is spent."""
    said, refused = await visit.tried("price", lambda: _price_body(visit))
    return await ask_page(visit, said, refused)


async def live_price(visit: Visit) -> Response:
    """Return the query's price as JSON, for the script of the query form; nothing is spent."""
    data_set = {"data_set": visit.at("data_set")}
    (said, refused), budget = await asyncio.gather(
        visit.tried("price", lambda: _price_body(visit)), visit.call("budget", data_set)
    )
    # a refusal is returned as JSON and not as an error page, because the user may still be typing
    if refused is not None:
        return JSONResponse(refusal_shape(for_pages(refused)))
    return JSONResponse(price_view(said or {}, _tightest(budget)))


async def ask(visit: Visit) -> Response:
    """Run the query and redirect to its answer; or show the query form with a refusal."""
    said, refused = await visit.tried("ask", lambda: ask_body(visit))
    if said is not None:
        return visit.go(f"/answer?op={quote(said['receipt']['op'], safe='')}")
    return await ask_page(visit, None, refused)


def price_view(price: Shape, account: Account) -> dict[str, Any]:
    """Format a query's price as the texts and numbers that the query page shows."""
    taken = price["epsilon"]
    head, rows = Price(dict(price)).table()
    return {
        "says": price["says"],
        "epsilon": plain_number(taken),
        "delta": plain_number(price["delta"]) if price["delta"] else "",
        "errors": [[name, error_words(price, name)] for name in price["error"]],
        "fits": bool(price["fits"]),
        "fits_words": _fits_words(price),
        "paid": "paid before" if price["free"] else "nothing is spent yet",
        "odds": price["odds"],
        "bounding": price["bounding"],
        "advice": [in_pages(line) for line in price["advice"]],
        "notes": [
            f"noise: {price['mechanism']}",
            *assumed_words(price),
            *_about_keys(price),
        ],
        "offers": {"head": head, "rows": rows},
        "take": 0 if price["free"] else _taken(account, taken),
    }


def _taken(account: Account, epsilon: float) -> float:
    """Return the share of the epsilon cap that the query would spend, in per cent.

    It is at most the share that is left, so that the page's bar doesn't overflow.
    """
    cap = account.cap["epsilon"]
    return round(min(100 - account.share, 100 * epsilon / cap), 3) if cap else 0


def _fits_words(price: Shape) -> str:
    """Return a sentence: whether the budget allows the price, and the largest epsilon it allows.

    For a repeated query, the sentence says that the answer is free.
    """
    left = price["left"]["next_epsilon"]
    if price["free"]:
        return "Answered before: asking again is free, with the same numbers."
    if not left:
        return "It does not fit: nothing is left."
    fits = "It fits" if price["fits"] else "It does not fit"
    return f"{fits}: the largest that fits is ε {plain_number(left)}."


def _about_keys(price: Shape) -> list[str]:
    shown = [part["shown_from_people"] for part in price["split"] if part.get("shown_from_people")]
    return [f"a group is shown from about {one['half']:,} people on" for one in shown[:1]]


def _price_terms(form: Form) -> dict[str, object]:
    """Return the submitted form fields that decide the price: SQL, epsilon, error, bounds."""
    terms: dict[str, object] = {"sql": form.raw("sql")}
    error = form.number("error")
    if error is None:
        terms["epsilon"] = form.number("epsilon")
    elif not form.text("error_column"):
        raise bad_request("a wanted error names its column")
    else:
        terms["error"] = {form.text("error_column"): error}
    terms["delta"] = form.number("delta")
    terms |= {name: form.count(name) for name in ("people", "max_groups", "max_rows")}
    return {name: value for name, value in terms.items() if value is not None}


def _price_body(visit: Visit) -> dict[str, object]:
    body = {"data_set": visit.at("data_set"), **_price_terms(visit.form)}
    return {**body, "fresh": True} if visit.form.has("fresh") else body


def ask_body(visit: Visit) -> dict[str, object]:
    """Return the body of an `ask` request, read from the submitted query form."""
    body = _price_body(visit)
    if visit.form.text("op"):
        body["op"] = visit.form.text("op")
    return body


async def ask_page(visit: Visit, price: Said | None, refused: Refused | None) -> Response:
    """Render the query form with the submitted values, and with the query's price or a refusal."""
    name = {"data_set": visit.at("data_set")}
    card, budget = await asyncio.gather(visit.call("card", name), visit.call("budget", name))
    account = _tightest(budget)
    form = visit.form
    return visit.page(
        "ask.html",
        refused,
        card=card,
        words=completions(card),
        account=account,
        price=None if price is None else price_view(price, account),
        form=form,
        sql=form.raw("sql") or f"SELECT COUNT(*) AS n FROM {card['name']}",
        epsilon=form.text("epsilon") or FIRST,
        op=visit.draw(16).hex(),
    )


def completions(card: Shape) -> list[list[str]]:
    """Return the SQL editor's completions as pairs: keyword, table, column or key, and its kind."""
    found = [[card["name"], "data set"], *([word, ""] for word in WORDS)]
    sources = [("", card), *((f"{table['name']}.", table) for table in card["tables"])]
    for prefix, source in sources:
        for column in source["columns"]:
            found.append([f"{prefix}{column['name']}", column["type"]])
            found += [[_literal(key), column["name"]] for key in (column["keys"] or [])[:200]]
    found += [[table["name"], "table"] for table in card["tables"]]
    return found


def _literal(key: object) -> str:
    return str(key).lower() if isinstance(key, bool | int | float) else _quoted(str(key))


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _tightest(budget: Shape) -> Account:
    return min(accounts_of(budget), key=lambda account: float(account.left["next_epsilon"]))


PAGES: Final = (
    Page("GET", "/data-sets/{data_set}/ask", form, ("card", "budget", "ask")),
    Page("POST", "/data-sets/{data_set}/ask", ask, ("ask", "answer")),
    Page("POST", "/data-sets/{data_set}/price", price, ("price",)),
    Page("POST", "/data-sets/{data_set}/price/live", live_price, ("price",), is_for_script=True),
)
