"""Console pages of programs: hand in, try and price a program, and see its state."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from starlette.responses import Response

from sfumato.client.ask_terms import Json
from sfumato.client.display import BlocksPlan
from sfumato.dp.refusal import Refused
from sfumato.features.pipelines.client import (
    MAX_FILES,
    check_listed,
    listed_places,
    output_places,
    texts_of,
)
from sfumato.server.console.forms import Form
from sfumato.server.console.number_text import margin
from sfumato.server.console.page import Page
from sfumato.server.console.visit import Said, Visit

FIRST: Final = "1"  # the epsilon that the empty forms propose
MAX_ROWS: Final = 64  # of outputs
MAX_PEOPLE, MAX_FOLDERS = 20_000, 40  # the most synthetic people that the form of a trial proposes
KINDS: Final = ("program", "bids", "function")
_FIELDS: Final = ("name", "lower", "upper", "step", "shape", "path", "at")
# what a refusal's cause names -> the field of the form beside which it is shown
_BESIDE: Final = tuple(
    (re.compile(said), field)
    for said, field in (
        (
            r"file '.*' of the program|several files|files of the program|a program's folder|"
            r"with all its files",
            "modules",
        ),
        (r"bytes of UTF-8|program's text", "source"),
        (r"name of its file", "file"),
        (r"function has no name", "function"),
        (r"[Cc]olumn", "columns"),
        (r"declare 1 to|two outputs|arrays together|outputs of a program|an output", "outputs"),
        (r"an image needs|environment", "environment"),
    )
)
_NAMED: Final = re.compile(r"(?:output|array) '([^']*)'")


@dataclass(frozen=True)
class Problem:
    """A refusal of a submitted program, and the field of the form beside which it is shown."""

    refused: Refused
    field: str


async def programs(visit: Visit) -> Response:
    """Show the programs of a data set that the visitor may see, and the visitor's own runs."""
    name = {"data_set": visit.at("data_set")}
    found, runs = await asyncio.gather(
        visit.call("pipelines", name), visit.call("pipeline-runs", name)
    )
    return visit.page(
        "programs.html",
        data_set=visit.at("data_set"),
        programs=sorted(found["pipelines"], key=lambda one: one["state"] != "waiting"),
        runs=runs["runs"],
        may_decide=found["may_decide"],
    )


async def form(visit: Visit) -> Response:
    """Show the form in which a researcher hands in a program."""
    return await _form_page(visit, None)


async def hand_in(visit: Visit) -> Response:
    """Hand in the form's program, and go to its page; or show the form with what is wrong."""
    if visit.form.has("rows") or visit.form.has("files"):  # for another output or another file
        return await _form_page(visit, None)
    made, refused = await visit.tried("submit-pipeline", lambda: _body(visit))
    if made is not None:
        return visit.go(_at(visit, made["digest"]))
    return await _form_page(visit, refused)


async def program(visit: Visit) -> Response:
    """Show one program: its state, its trial, its price, and its text."""
    return await program_page(visit, None)


async def trial(visit: Visit) -> Response:
    """Try the program on synthetic people, and show its page with the trial."""
    _, refused = await visit.tried("plan-pipeline", lambda: _trial_body(visit))
    if refused is not None:
        return await program_page(visit, refused)
    at = _at(visit, visit.at("pipeline"))
    return visit.go(f"{at}/review" if visit.form.has("review") else f"{at}#trial")


async def price(visit: Visit) -> Response:
    """Show what a run would cost and how precise it would be; nothing is spent."""
    said, refused = await visit.tried("price-pipeline", lambda: run_terms(visit))
    return await program_page(visit, refused, priced=said)


async def program_page(
    visit: Visit, refused: Refused | None, *, priced: Said | None = None
) -> Response:
    """Render the page of one program, with a refusal or a price if there is one."""
    name = {"data_set": visit.at("data_set")}
    one, budget, card = await asyncio.gather(
        visit.call("pipeline", {**name, "pipeline": visit.at("pipeline")}),
        visit.call("budget", name),
        visit.call("card", name),
    )
    first = _first_terms(visit.form, one)
    return visit.page(
        "program.html",
        refused,
        **facts(one),
        data_set=visit.at("data_set"),
        people=people_of(card),
        at=_at(visit, one["digest"]),
        is_open=any(name in _MORE or ":" in name for name in first),
        timings=_timings(one, is_trial=False),
        first=first,
        price=priced,
        errors=price_errors(priced),
        accounts=[] if priced is None else _accounts(budget, priced),
        fits=priced is None or priced["fits"],
        terms=_typed(visit.form),
        op=visit.draw(16).hex(),
    )


def facts(one: Said) -> dict[str, object]:
    """Return what the pages of a program show of it: itself, and its trial as tables."""
    own, known = one["environment"].partition("+")[2], one.get("environment_facts")
    kind, _, digest = own.partition("-")
    plan = None if one["trial"] is None else BlocksPlan(one["trial"]["plan"])
    return {
        "one": one,
        "environment": {"name": own, "kind": kind, "digest": digest},
        "about": known["lines"] if known else [],
        "texts": [(path, text.split("\n")) for path, text in texts_of(one)],
        "plan": plan,
        "plan_table": None if plan is None else plan.table(),
        "trial_timings": _timings(one, is_trial=True),
    }


def people_of(card: Said) -> int:
    """Return how many synthetic people a trial proposes: the card's size, or a small number."""
    most = min(MAX_FOLDERS, card["folders"]["people"]) if "folders" in card else MAX_PEOPLE
    return min(card["size"] or 200, most)


def price_errors(priced: Said | None) -> list[tuple[str, str]]:
    """Return the name and the error of each output of a priced run, in words."""
    if priced is None:
        return []
    unit = " ranks among the blocks" if priced["error_is"] == "ranks" else ""
    return [(name, f"± {margin(error)}{unit}") for name, error in priced["error"].items()]


def run_terms(visit: Visit) -> dict[str, object]:
    """Return the request that prices or begins a run, read from the submitted form."""
    sent = visit.form
    counts = {name: sent.count(name) for name in ("blocks", "trim", "memory_mb", "disk_mb")}
    numbers = {name: sent.number(name) for name in ("epsilon", "delta", "cpu_s", "job_s")}
    words = {name: sent.text(name) or None for name in ("take", "timing")}
    by_output = {name: _numbers_of(sent, name) or None for name in _BY_OUTPUT}
    terms: dict[str, object] = {**counts, **numbers, **words, **by_output}
    named = {name: value for name, value in terms.items() if value is not None}
    return {"data_set": visit.at("data_set"), "pipeline": visit.at("pipeline"), **named}


# --- the form ---------------------------------------------------------------------------------


async def _form_page(visit: Visit, refused: Refused | None) -> Response:
    name = {"data_set": visit.at("data_set")}
    card, found = await asyncio.gather(visit.call("card", name), visit.call("pipelines", name))
    outputs = _typed_outputs(visit.form)
    wanted = visit.form.count("rows") if visit.form.has("rows") else None
    empty = dict.fromkeys(_FIELDS, "")
    rows = [*outputs, *[empty] * MAX_ROWS][: min(MAX_ROWS, max(2, len(outputs), wanted or 0))]
    modules = _typed_modules(visit.form)
    files = visit.form.count("files") if visit.form.has("files") else None
    problem = None if refused is None else Problem(refused, _beside(refused, outputs))
    return visit.page(
        "program_form.html",
        refused,
        card=card,
        columns=_columns(card),
        environments=found["environments"],
        kind=visit.form.text("kind") or KINDS[0],
        form=visit.form,
        chosen=visit.form.all("column"),
        outputs=rows,
        modules=[*modules, *[("", "")] * MAX_FILES][: min(MAX_FILES - 1, files or len(modules))],
        MAX_FILES=MAX_FILES,
        problem=problem,
    )


def _body(visit: Visit) -> dict[str, object]:
    sent = visit.form
    outputs = [_output(one) for one in _typed_outputs(sent)]
    kind = sent.text("kind")
    if sent.has("whitelist") and kind != "function":
        check_listed(outputs, sent.raw("whitelist"))
    columns, modules = sent.all("column"), _typed_modules(sent)
    files = [{"path": path, "text": text} for path, text in modules]
    return {
        "data_set": visit.at("data_set"),
        "source": sent.raw("source"),
        **({"main": sent.text("main"), "modules": files} if files else {}),
        "kind": kind,
        "name": sent.text("function") if kind == "function" else "group",
        **({"file": sent.text("file")} if sent.has("file") else {}),
        "outputs": outputs,
        **({"columns": columns} if columns else {}),
        **({"environment": sent.text("environment")} if sent.has("environment") else {}),
    }


def _output(typed: Mapping[str, str]) -> Json:
    """Return a row of the form as an output; the reader on the other side checks it."""
    made: Json = {name: typed[name] for name in ("name", "lower", "upper")}
    if typed["step"]:
        made["step"] = typed["step"]
    if typed["shape"]:
        made["shape"] = listed_places(typed["shape"])
    if typed["path"]:
        made |= {"path": typed["path"], **output_places(typed["at"])}
    return made


def _typed_outputs(sent: Form) -> list[dict[str, str]]:
    """Return the rows of outputs that are not empty, as they were typed."""
    columns = [[one.strip() for one in sent.fields.get(f"output_{name}", ())] for name in _FIELDS]
    rows = [dict(zip(_FIELDS, row, strict=True)) for row in zip(*columns, strict=False)]
    return [row for row in rows if any(row.values())][:MAX_ROWS]


def _typed_modules(sent: Form) -> list[tuple[str, str]]:
    """Return the files besides the main one, as they were typed; empty rows are left out."""
    paths, texts = (sent.fields.get(f"module_{name}", ()) for name in ("path", "text"))
    rows = [(path.strip(), text) for path, text in zip(paths, texts, strict=False)]
    return [row for row in rows if any(row)]


def _beside(refused: Refused, outputs: Sequence[Mapping[str, str]]) -> str:
    """Return the field that a refusal is about, such as "output-0"; "" if it names none."""
    if "whitelist" in refused.cause:
        return "whitelist"
    named = _NAMED.search(refused.cause)
    places = [n for n, one in enumerate(outputs) if named is not None and one["name"] == named[1]]
    if places:
        return f"output-{places[0]}"
    if refused.code in ("bad-environment", "unknown-column"):
        return "environment" if refused.code == "bad-environment" else "columns"
    return next((field for said, field in _BESIDE if said.search(refused.cause)), "")


def _columns(card: Said) -> list[str]:
    """Return the columns that a program may read: of other tables only if there are folders."""
    beside = [one for one in card["tables"] if "folders" in card and not one["public"]]
    return [
        *(column["name"] for column in card["columns"]),
        *(f"{table['name']}.{column['name']}" for table in beside for column in table["columns"]),
    ]


# --- terms ------------------------------------------------------------------------------------


def _trial_body(visit: Visit) -> dict[str, object]:
    sent = visit.form
    terms = {
        "epsilon": sent.number("epsilon") or 1,
        "cpu_s": sent.number("cpu_s"),
        **{name: sent.count(name) for name in ("people", "blocks", "memory_mb", "disk_mb")},
        "timing": sent.text("timing") or None,
    }
    named = {name: value for name, value in terms.items() if value is not None}
    return {"data_set": visit.at("data_set"), "pipeline": visit.at("pipeline"), **named}


_MORE: Final = ("trim", "take", "delta", "memory_mb", "disk_mb", "timing", "job_s")
_TERMS: Final = ("epsilon", "blocks", "cpu_s", *_MORE)
_BY_OUTPUT: Final = ("split", "error")  # a field of each output is called `error:NAME`


def _numbers_of(sent: Form, term: str) -> dict[str, object]:
    """Return a term that has a number for each output: those of its fields that are not empty."""
    named = [name for name in sent.fields if name.startswith(f"{term}:") and sent.has(name)]
    return {name.partition(":")[2]: sent.number(name) for name in named}


def _typed(sent: Form) -> dict[str, str]:
    """Return the terms of a run as they were typed, by the names of their fields."""
    fields = [name for name in sent.fields if name.partition(":")[0] in _BY_OUTPUT]
    return {name: sent.text(name) for name in (*_TERMS, *fields) if sent.has(name)}


def _timings(one: Said, *, is_trial: bool) -> list[str]:
    """Return the timings between which the visitor may choose, the default first; [] if none.

    The owner may try a program in a batch before allowing that.
    """
    if "batch" not in one["timings"]:
        return []
    if one["timing"] == "batch":
        return ["batch", "isolated"]
    return ["isolated", "batch"] if is_trial and one["may_decide"] else []


def _first_terms(sent: Form, one: Said) -> dict[str, str]:
    """Return what the form of a run proposes: what was typed, else what the trial proposes."""
    plan = {} if one["trial"] is None else one["trial"]["plan"]
    most = one["most_epsilon"] if one["state"] == "approved" else 1
    first = {"epsilon": f"{min(1, most):g}", "blocks": str(plan.get("proposed") or 20)}
    choice = plan.get("choice")  # trials of earlier versions chose nothing
    if choice is not None:
        taken = {"take": choice["take"]} if choice["take"] == "median" else {}
        trimmed = {"trim": str(choice["trim"])} if choice["trim"] else {}
        first |= {"blocks": str(choice["blocks"]), **taken, **trimmed}
    return {**(_typed(sent) or first)}


def _accounts(budget: Said, priced: Said) -> list[dict[str, Any]]:
    """Return what is left of each account now, and after the priced run."""
    named = [("Data set", budget), (f"People of {budget['people']['domain']}", budget["people"])]
    named += [
        ("Yourself" if name.startswith("user:") else name, one)
        for name, one in budget["yours"].items()
    ]
    return [
        {
            "name": name,
            "now": one["left"]["epsilon"],
            "after": max(0, one["left"]["epsilon"] - priced["epsilon"]),
        }
        for name, one in named
    ]


def _at(visit: Visit, digest: str) -> str:
    return f"/data-sets/{quote(visit.at('data_set'), safe='')}/programs/{quote(digest, safe='')}"


_P: Final = "/data-sets/{data_set}/programs"
_ONE: Final = f"{_P}/{{pipeline}}"
_SHOWN: Final = ("pipeline", "pipelines", "pipeline-runs", "budget", "card")
PAGES: Final = (
    Page("GET", _P, programs, _SHOWN),
    Page("GET", f"{_P}/new", form, ("submit-pipeline", *_SHOWN)),
    Page("POST", f"{_P}/new", hand_in, ("submit-pipeline", *_SHOWN)),
    Page("GET", _ONE, program, _SHOWN),
    Page("POST", f"{_ONE}/trial", trial, ("plan-pipeline", *_SHOWN)),
    Page("POST", f"{_ONE}/price", price, ("price-pipeline", *_SHOWN)),
)
