"""The doctor says what a machine lacks, what for, and the one command that brings it."""

from __future__ import annotations

import importlib.util
import shutil
import tomllib
from pathlib import Path

import pytest

from sfumato.app import doctor
from sfumato.dp.refusal import Refused
from sfumato.system import optional_packages as extras
from sfumato.system.optional_packages import EXTRAS

ROOT = Path(__file__).parents[2]
MODULES = {  # where the names differ
    "argon2-cffi": "argon2",
    "python-calamine": "python_calamine",
    "vl-convert-python": "vl_convert",
}


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide every module that an extra brings, as after `pip install sfumato` alone."""
    extra = {name for names in EXTRAS.values() for name in names}
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *a: None if name in extra else find(name, *a)
    )


def test_the_extras_are_those_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    del extras["flower"]  # in an environment of its own, so never here (docs/how-to/flower.md)
    for extra, wanted in extras.items():
        names = [line.split(">")[0].split("=")[0].split("[")[0] for line in wanted]
        assert EXTRAS[extra] == tuple(MODULES.get(name, name) for name in names)
    assert set(EXTRAS) == set(extras) == set(doctor.FOR)


@pytest.mark.usefixtures("bare")
def test_what_is_absent_is_named_with_what_it_is_for_and_what_brings_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(extras, "CHECKOUT", tmp_path)
    found = {name: (well, says, get) for name, well, says, get in doctor.checkup(None)}
    assert all(well for well, _, _ in found.values())
    for extra, modules in EXTRAS.items():
        _, says, get = found[extra]
        assert all(module in says for module in modules)
        assert doctor.FOR[extra] in says
        assert get == f'pip install "sfumato[{extra}]"'
    fleet = "python3 -m venv fleet && fleet/bin/pip install 'sfumato[flower]'"
    assert found["flower"][2] == fleet
    one = found["all of it"][2] or ""
    assert "flower" not in found["all of it"][1] + one  # its pins clash with those of the others
    assert one.startswith(
        'pip install "sfumato[serve,databases,files,frames,plot,lab,postgres,spark]"'
    )
    assert one.endswith('pip install "sfumato[federated]"')


@pytest.mark.usefixtures("bare")
def test_in_a_checkout_the_one_command_is_makes() -> None:
    found = {name: get for name, _, _, get in doctor.checkup(None)}
    assert found["all of it"] == "make .venv/torch.done system"
    assert f"pip install '{ROOT}[flower]'" in (found["flower"] or "")
    assert (found["serve"], found["federated"]) == ("make .venv/dev.done", "make .venv/torch.done")


def test_a_machine_that_lacks_nothing_is_told_of_no_command() -> None:
    well = doctor.Finding("python", True, "3.11.7")
    assert doctor._all_at_once([well, doctor.Finding("engine", True, "answers")]) == []


@pytest.mark.usefixtures("bare")
def test_a_part_that_needs_extras_is_refused_by_the_command_that_brings_them() -> None:
    with pytest.raises(Refused) as refused:
        extras.need("serve", "lab")
    assert refused.value.code == "not-installed"
    step = refused.value.next_step
    assert step.startswith('Install it with pip install "sfumato[serve,lab]".')
    assert step.endswith(" In this checkout: make .venv/dev.done.")


@pytest.mark.usefixtures("bare")
def test_outside_of_a_checkout_no_refusal_speaks_of_make(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(extras, "CHECKOUT", tmp_path)
    with pytest.raises(Refused) as refused:
        extras.need("federated")
    assert refused.value.cause == "torch is not installed."
    assert refused.value.next_step == 'Install it with pip install "sfumato[federated]".'


@pytest.mark.usefixtures("bare")
def test_make_is_told_where_the_checkout_is_for_who_stands_elsewhere(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert extras.make_of("serve") == f"make -C {extras.CHECKOUT} .venv/dev.done"
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert extras.make().startswith("make -C ")


def test_an_engine_that_does_not_answer_is_a_finding_and_no_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sfumato.engines.duckdb.engine._START_S", 0.0)
    finding = doctor._check_engine()
    assert not finding.is_well
    assert "did not answer" in finding.says


def test_a_place_for_anchors_that_cannot_be_written_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file" / "state"))
    finding = doctor._check_anchors()
    assert not finding.is_well
    assert "--anchor" in finding.says


def test_pyspark_without_java_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    finding = doctor._check_extra("spark")
    assert finding.is_well
    assert finding.get == "sudo apt-get install default-jre-headless"
