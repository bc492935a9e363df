"""No attack is right more often than theory allows, and a release that breaks its word is seen."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sfumato.app.command_line import CommandLine
from sfumato.cli.main import run
from sfumato.dp.refusal import Refused
from sfumato.lab import attack_bounds
from sfumato.lab.attack import EPSILONS_OPTION, Attack, Setting
from sfumato.lab.attack_bounds import Bounds, Row, all_against_ours
from sfumato.lab.attack_report import Report, SuccessRate
from sfumato.lab.attacks import attacks

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "lab-bounds.md"


def row(hits: int, tries: int, bound: float) -> Row:
    return Row("guessing", SuccessRate("epsilon = 1", hits, tries, 1.0, bound))


def guesser(share: float) -> Attack:
    """Return an attack that is right that often, against a release that allows 73 %."""

    def found(setting: Setting) -> Report:
        hits = int(setting.dice.binomial(setting.runs, share))
        ours = tuple(
            SuccessRate(f"{e:g}", hits, setting.runs, e, 0.731) for e in setting.epsilons()
        )
        bare = SuccessRate("exact", setting.runs, setting.runs)
        return Report("guesser", "", "", "", (bare, *ours), "")

    return Attack("guesser", "guess", found, runs=20_000, options=EPSILONS_OPTION)


def test_an_attack_above_its_bound_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attack_bounds, "attacks", lambda: (guesser(0.70), guesser(0.80)))
    found = all_against_ours(seed=1)
    assert [one.success.hits for one in found.broken] == [found.rows[-1].success.hits] * 6
    assert "MORE OFTEN" in found.finding


def test_an_attack_at_its_bound_is_not_accused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attack_bounds, "attacks", lambda: (guesser(0.731),))
    for seed in range(50):
        assert all_against_ours(seed=seed).broken == ()


def test_only_what_theory_bounds_is_in_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attack_bounds, "attacks", lambda: (guesser(0.7),))
    found = all_against_ours(seed=1, runs=50)
    assert [one.success.epsilon for one in found.rows] == [0.1, 0.3, 1, 3, 10, 30]
    assert {one.success.tries for one in found.rows} == {50}


def test_the_more_rows_share_a_mistake_the_lower_is_the_lower_end() -> None:
    one, many = Bounds((row(80, 100, 0.5),)), Bounds((row(80, 100, 0.5),) * 100)
    assert many.least(many.rows[0]) < one.least(one.rows[0]) < 0.8


def test_the_lower_ends_are_all_below_the_truth_nearly_always() -> None:
    dice, wrong = np.random.default_rng(1), 0
    for _ in range(200):
        hits = dice.binomial(200, 0.3, 20)
        found = Bounds(tuple(row(int(one), 200, 0.3) for one in hits), confidence=0.9)
        wrong += found.broken != ()
    assert wrong <= 35  # 20 are expected at most


def test_every_attack_is_in_the_registry_once_and_runs_by_its_name() -> None:
    names = [one.name for one in attacks()]
    assert len(names) == len(set(names))
    assert {"reconstruction", "membership", "membership-models", "attribute", "synthetic",
            "gradients", "floats"} <= set(names)  # fmt: skip


def test_the_epsilons_that_are_tried_can_be_typed_and_are_checked() -> None:
    dice = np.random.default_rng(1)
    assert Setting(dice, 1, {"epsilons": "0.5,2"}).epsilons() == (0.5, 2)
    assert Setting(dice, 1).epsilons() == (0.1, 1, 10)
    assert Setting(dice, 1, {"epsilons": "1,1,2,1"}).epsilons() == (1, 2)
    for wrong in ("", "a", "1,,2", "0", "0.009", "-1", "101", "nan"):
        with pytest.raises(Refused, match="epsilons are numbers"):
            Setting(dice, 1, {"epsilons": wrong}).epsilons()


def test_the_page_of_the_docs_breaks_no_bound_and_has_every_epsilon() -> None:
    text = PAGE.read_text("utf-8")
    assert "**No attack is right more often than theory allows" in text
    rows = [line.split("|")[1:-1] for line in text.splitlines() if line.endswith("% |")]
    assert len(rows) > 60
    for cells in rows:
        least, bound = (float(cell.strip(" %")) for cell in cells[-2:])
        assert least <= bound
    for epsilon in attack_bounds.EPSILONS.split(","):
        assert any(f"epsilon = {epsilon}" in cells[1] for cells in rows)
    assert {cells[0].strip() for cells in rows} == {one.name for one in attacks()}


def test_the_command_writes_the_page(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(attack_bounds, "attacks", lambda: (guesser(0.7),))
    page = tmp_path / "page.md"
    assert run(["attack", "--all", "--seed", "1", "--save", str(page)], CommandLine()) == 0
    assert "No attack is right more often" in capsys.readouterr().out
    assert page.read_text("utf-8") == all_against_ours(seed=1).page


@pytest.mark.parametrize("also", [["floats"], ["--set", "people=3"], ["--save", "page.png"]])
def test_all_is_all_and_its_page_is_text(also: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attack_bounds, "attacks", lambda: (guesser(0.7),))
    assert run(["attack", "--all", "--runs", "5", *also], CommandLine()) != 0


def test_every_attack_answers_for_every_epsilon_of_the_table() -> None:
    found = all_against_ours(runs=10, seed=3)
    assert found.broken == (), found.finding
    tried = {one.attack: set[float | None]() for one in found.rows}
    for one in found.rows:
        tried[one.attack].add(one.success.epsilon)
    assert tried == {one.name: {0.1, 0.3, 1, 3, 10, 30} for one in attacks()}


@pytest.mark.slow
def test_no_attack_is_right_more_often_than_theory_allows() -> None:
    found = all_against_ours(seed=None)
    assert found.broken == (), found.finding
