"""Pictures of answers: what the spec says, that they render offline, and that names stay names."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from html import unescape
from html.parser import HTMLParser
from itertools import product
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from sfumato.client import Answer
from sfumato.client.answer_chart import PALETTE, Cell
from sfumato.client.plot import is_apart
from sfumato.dp.refusal import Refused
from support.small_vaults import PATIENTS_CARD, open_with, write_patients

Rows = Sequence[tuple[object, ...]]


def answer(keys: Sequence[str], rows: Rows, *, verb: str = "count", half: float = 8) -> Answer:
    """Return an answer with one number a row, as the door would have made it."""
    outputs = [{"name": key, "key": key} for key in keys]
    question = {"outputs": [*outputs, {"name": "n", "verb": verb, "column": ""}]}
    none = (None,) * len(keys)
    receipt = {
        "data_set": "clinic",
        "version": "2026-11",
        "says": "the number of rows",
        "bounding": "at most 1 row of a person count, chosen at random",
        "epsilon": 0.5,
        "free": False,
        "question": question,
    }
    return Answer(
        columns=(*keys, "n"),
        rows=tuple(rows),
        std=tuple((*none, half / 2) for _ in rows),
        interval=tuple((*none, (_end(row) - half, _end(row) + half)) for row in rows),
        guarantee="central-dp",
        receipt=dict(receipt),
    )


def _end(row: tuple[object, ...]) -> float:
    return row[-1] if isinstance(row[-1], int | float) else 0


PLACES = answer(["place"], [("north", 120), ("south", 80), ("east", 75)])
WARDS = answer(["place", "ward"], [(*key, 10) for key in product(("n", "s", "e"), ("A", "B"))])
DAYS = answer(["day"], [("2026-01-01", 5), ("2026-01-02", 9), ("2026-02-01", 30), (None, 2)])
MANY = answer(["code"], [(f"C{n:03d}", n * 37 % 90) for n in range(90)])
SINGLE = answer([], [(1234,)], verb="count_people")
ALL = {"one": PLACES, "two": WARDS, "days": DAYS, "many": MANY, "single": SINGLE}


def layers(spec: dict[str, Any]) -> dict[str, dict[str, Any]]:  # Any: a Vega-Lite spec is JSON
    """Return the layers of the chart by the kind of their mark."""
    chart: dict[str, Any] = spec.get("spec", spec)
    return {layer["mark"]["type"]: layer for layer in chart["layer"]}


def values(spec: Any) -> list[dict[str, Any]]:  # Any: JSON
    return list(spec["data"]["values"])


def test_one_key_is_bars_with_error_bars_and_the_price_under_the_title() -> None:
    spec = PLACES.plot().spec | {"config": {}, "description": ""}
    y = {"type": "quantitative", "title": "n", "scale": {"zero": True}, "axis": {"tickCount": 6}}
    bars = [(120, 112, 128, "north"), (80, 72, 88, "south"), (75, 67, 83, "east")]
    assert spec == {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "config": {},
        "description": "",
        "title": {
            "text": "n by place",
            "subtitle": [
                "clinic, version 2026-11: the number of rows",
                "Dark lines: 95 % intervals of the noise alone. central-dp, epsilon 0.5 paid.",
            ],
        },
        "data": {
            "values": [
                {"value": v, "low": low, "high": high, "key": key, "text": f"{v} ± 8"}
                for v, low, high, key in bars
            ]
        },
        "width": {"step": 56, "for": "position"},
        "height": 300,
        "encoding": {
            "x": {
                "field": "key",
                "type": "nominal",
                "sort": None,
                "title": "place",
                "axis": {"labelAngle": 0},
            },
            "tooltip": [
                {"field": "key", "title": "place", "type": "nominal"},
                {"field": "text", "title": "n", "type": "nominal"},
            ],
        },
        "layer": [
            {
                "mark": {"type": "bar", "opacity": 0.85, "color": PALETTE[0]},
                "encoding": {"y": {"field": "value", **y}},
            },
            {
                "mark": {"type": "rule", "strokeWidth": 2, "color": "#222222"},
                "encoding": {"y": {"field": "low", **y}, "y2": {"field": "high"}},
            },
        ],
    }


def test_two_keys_stand_beside_each_other_in_colours() -> None:
    spec = WARDS.plot().spec
    encoding: Any = spec["encoding"]
    assert encoding["xOffset"]["field"] == "colour"
    assert layers(spec)["bar"]["encoding"]["color"]["title"] == "ward"
    assert [v["colour"] for v in values(spec)] == ["A", "B"] * 3


def test_a_third_key_gets_a_panel_for_each_value() -> None:
    rows = [(*key, 10) for key in product("ab", "cd", "ef")]
    spec: Any = answer(["x", "y", "z"], rows).plot().spec
    assert spec["facet"]["title"] == "z"
    assert {v["panel"] for v in values(spec)} == {"e", "f"}


def test_dates_are_a_line_with_a_band_and_the_missing_ones_are_told() -> None:
    spec: Any = DAYS.plot().spec
    assert set(layers(spec)) == {"area", "line"}
    assert layers(spec)["area"]["encoding"]["y"]["field"] == "low"
    assert spec["encoding"]["x"]["type"] == "temporal"
    assert spec["encoding"]["x"]["scale"] == {"type": "utc"}
    assert [v["key"] for v in values(spec)][:1] == ["2026-01-01T00:00:00Z"]
    assert spec["title"]["subtitle"][-1] == "Not drawn: (missing): 2 ± 8"


def test_numbers_are_a_line_and_codes_that_look_like_them_are_bars() -> None:
    ages = answer(["age"], [(20, 5), (30, 6), (40, 7)])
    codes = answer(["zip"], [("10001", 5), ("20260101", 6), ("2026-13-45", 7)])
    assert "line" in layers(ages.plot().spec)
    assert "bar" in layers(codes.plot().spec)


def test_a_mean_is_a_point_and_its_axis_need_not_begin_at_zero() -> None:
    point = layers(answer(["place"], [("n", 40.5), ("s", 41.5)], verb="mean").plot().spec)["point"]
    assert point["encoding"]["y"]["scale"] == {"zero": False}


def test_many_keys_are_sorted_and_the_picture_says_what_that_does() -> None:
    plot = MANY.plot()
    title: Any = plot.spec["title"]
    shown = [v["value"] for v in values(plot.spec)]
    assert shown == list(range(89, 29, -1))
    assert title["subtitle"][-1] == (
        "The 60 largest of 90, by their noisy values: the first tend to be too high."
    )
    assert len(plot.cells) == 90


def test_every_error_bar_is_the_interval_of_the_answer() -> None:
    drawn = {(v["low"], v["high"]) for v in values(PLACES.plot().spec)}
    assert drawn == {pair for row in PLACES.interval for pair in row if pair}


def test_what_a_program_says_is_drawn_though_it_answers_no_question() -> None:
    said = answer([], [(4,)])
    receipt = {name: value for name, value in said.receipt.items() if name != "question"}
    said = Answer(said.columns, said.rows, said.std, said.interval, said.guarantee, receipt)
    (shown,) = values(said.plot().spec)
    assert (shown["low"], shown["high"]) == (-4, 12)


def test_what_a_program_says_is_not_summed_tidied_or_sampled() -> None:
    said = answer([], [(4,)])
    receipt = {name: value for name, value in said.receipt.items() if name != "question"}
    said = Answer(said.columns, said.rows, said.std, said.interval, said.guarantee, receipt)
    for ask in (said.tidy, said.total, said.with_sampling):
        with pytest.raises(Refused, match="comes from a program"):
            ask()


def test_a_number_without_an_interval_has_no_error_bar() -> None:
    bare = answer(["place"], [("n", 4), ("s", 5)])
    bare = Answer(bare.columns, bare.rows, bare.std, ((None, None),) * 2, "x", bare.receipt)
    plot = bare.plot()
    assert "low" not in values(plot.spec)[0]
    assert "0 of 1 pairs" in plot.summary


def test_the_summary_says_what_is_largest_what_is_noise_and_what_was_paid() -> None:
    assert PLACES.plot().summary.splitlines() == [
        "n by place. the number of rows.",
        "Largest of 3: north: 120 ± 8. Smallest: east: 75 ± 8.",
        "The largest is above every other by more than noise.",
        "2 of 3 pairs differ by more than their noise (each pair judged alone, at 95 %).",
        "± and ranges: 95 % intervals of the noise alone; at most 1 row of a person count, "
        "chosen at random.",
        "central-dp, epsilon 0.5 paid.",
    ]
    assert repr(PLACES.plot()) == PLACES.plot().summary


def test_numbers_that_were_tidied_are_not_compared() -> None:
    summary = PLACES.tidy().plot().summary
    assert "Differences are not judged" in summary
    assert "Tidied" in summary


@pytest.mark.parametrize(("gap", "expected"), [(11, False), (12, True)])
def test_a_difference_is_judged_by_both_noises_together(gap: float, expected: bool) -> None:
    low, high = (Cell(None, (), v, v - 8, v + 8, "") for v in (0, gap))  # hypot(8, 8) is 11.3
    assert is_apart(high, low) is expected


def test_the_arms_that_face_each_other_decide() -> None:
    above = Cell(None, (), 20, 19, 90, "")
    below = Cell(None, (), 10, -90, 11, "")
    assert is_apart(above, below)


def test_the_table_has_every_number_with_its_range() -> None:
    lines = PLACES.plot().table.splitlines()
    assert lines[0].split() == ["place", "n"]
    assert lines[2].split() == ["north", "120", "±", "8"]


@pytest.mark.parametrize("name", ALL)
def test_every_kind_of_picture_really_renders(name: str, tmp_path: Path) -> None:
    plot = ALL[name].plot(title="A title & more")
    svg = plot.save(tmp_path / "a.svg").read_text("utf-8")
    root = parsed(svg)
    assert [child.text for child in root[:2]] == ["A title & more", plot.summary]
    assert root.get("role") == "img"
    assert svg.count("<path") > 3
    assert plot.save(str(tmp_path / "a.png")).read_bytes().startswith(b"\x89PNG")
    assert json.loads(plot.save(tmp_path / "a.json").read_text()) == plot.spec


def parsed(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg)  # noqa: S314 (we have just written it)


class Page(HTMLParser):
    """What a page would fetch, and the text and scripts that it has."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.tags = [""]
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what the tag would fetch."""
        self.tags.append(tag)
        self.fetched += [str(v) for k, v in attrs if k in ("src", "href", "data", "srcset")]

    def handle_data(self, data: str) -> None:
        """Note the text, but for scripts."""
        if self.tags[-1] not in ("script", "style"):
            self.words.append(data)


def test_the_page_has_title_chart_summary_and_table_and_fetches_nothing(tmp_path: Path) -> None:
    plot = PLACES.plot()
    text = plot.save(tmp_path / "a.html").read_text("utf-8")
    page = Page(text)
    assert page.fetched == []
    assert not re.search(r"@import|url\(\s*[\"']?https?:", text.partition("<script>")[0])
    assert "default-src 'none'" in text
    assert {"title", "svg", "table", "script"} <= set(page.tags)
    words = "\n".join(page.words)
    assert all(line in words for line in plot.summary.splitlines())
    assert all(cell in words for row in plot.cells for cell in row)


EVIL = "</script><script>alert(1)</script><img src=//e.vil/x onerror='alert(2)'>\"&"


def test_hostile_names_and_keys_stay_text(tmp_path: Path) -> None:
    plot = answer([EVIL, "a.b[0]"], [(EVIL, "x", 4), (EVIL, "y", 5)]).plot(title=EVIL)
    parsed(plot.save(tmp_path / "a.svg").read_text("utf-8"))
    for text in (plot.save(tmp_path / "a.html").read_text("utf-8"), plot._repr_html_()):
        page = Page(text)
        assert "img" not in page.tags
        assert page.fetched == []
        assert page.tags.count("script") in (0, 2)
    assert values(plot.spec)[0]["colour"] == EVIL
    assert "a.b[0]" not in {v.get("field") for v in _objects(plot.spec)}
    assert EVIL not in {v.get("field") for v in _objects(plot.spec)}


def _objects(shape: Any) -> list[dict[str, Any]]:  # Any: JSON
    found = [shape] if isinstance(shape, dict) else []
    inside = shape.values() if isinstance(shape, dict) else shape
    return found + [o for v in inside if isinstance(v, dict | list) for o in _objects(v)]


def test_keys_that_cannot_be_printed_are_cleaned_and_stay_apart(tmp_path: Path) -> None:
    rows = [("a\u202eb", 1), ("a\u202db", 2), (None, 3), ("(missing)", 4), ("", 5), ("\x1b", 6)]
    plot = answer(["k"], rows).plot()
    labels = [row[0] for row in plot.cells]
    assert labels == ["a b", "a b (2)", "(missing)", "(missing) (2)", "(empty)", " "]
    parsed(plot.save(tmp_path / "a.svg").read_text("utf-8"))


def test_a_notebook_gets_the_picture_its_words_and_its_table() -> None:
    plot = PLACES.plot()
    bundle = plot._repr_mimebundle_()
    assert bundle["text/plain"] == plot.summary
    assert re.search(r'role="img" aria-label="n by place\.', bundle["text/html"])
    assert "<svg" in bundle["text/html"]
    assert "<table>" in bundle["text/html"]
    assert plot.summary.splitlines()[1] in unescape(bundle["text/html"])


def test_without_the_renderer_the_refusal_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    plot = PLACES.plot()
    with pytest.raises(Refused, match=r"sfumato\[plot\]") as refused:
        plot.save(tmp_path / "a.svg")
    assert refused.value.code == "not-installed"
    assert "<table>" in plot._repr_html_()
    assert plot.save(tmp_path / "a.json").exists()


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"x": "n"}, "'n' is not a column that the chart can use"),
        ({"y": "place"}, "'place' is not a column that the chart can use"),
        ({"color": "moon"}, "'moon' is not a column that the chart can use"),
        ({"x": "place", "color": "place"}, "both as x and as color"),
    ],
)
def test_a_column_that_is_not_there_is_refused(asked: dict[str, str], words: str) -> None:
    with pytest.raises(Refused, match=words):
        WARDS.plot(**asked)


def test_too_many_panels_and_unknown_suffixes_are_refused(tmp_path: Path) -> None:
    rows = [(f"a{i}", f"b{j}", 1) for i in range(20) for j in range(20)]
    with pytest.raises(Refused, match="panels"):
        answer(["a", "b"], rows).plot()
    with pytest.raises(Refused, match=r"\.svg, \.png"):
        PLACES.plot().save(tmp_path / "a.pdf")


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"folder of .*nodir.* does not exist") as refused:
        PLACES.plot().save(tmp_path / "nodir" / "a.json")
    assert refused.value.next_step == "Create it, or name another file."


def test_x_and_colour_can_be_chosen() -> None:
    spec: Any = WARDS.plot(x="ward", color="place", title="Mine").spec
    assert spec["encoding"]["x"]["title"] == "ward"
    assert layers(spec)["bar"]["encoding"]["color"]["title"] == "place"
    assert spec["title"]["text"] == "Mine"


def test_an_answer_of_a_real_vault_draws_itself(tmp_path: Path) -> None:
    source = write_patients(tmp_path / "rows.csv")
    with open_with(tmp_path, "clinic", source, PATIENTS_CARD) as vault:
        asked = vault["clinic"].group_by("zip").people().mean("age").ask(epsilon=1)
    people, ages = asked.plot(), asked.plot(y="avg_age")
    assert people.title == "people by zip"
    assert "epsilon 1 paid" in people.summary
    assert "bar" in layers(people.spec)
    assert "point" in layers(ages.spec)
    assert ages.save(tmp_path / "a.svg").stat().st_size > 1000
