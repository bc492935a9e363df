"""Ten programs as their authors wrote them, from the look-alike to a private answer."""

from __future__ import annotations

import io
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import sfumato
from sfumato.app.local_trial import try_program
from sfumato.app.settings import change_settings
from sfumato.app.vault import OpenVault
from sfumato.sandbox.environment_store import Environments
from support.container_images import layout, member, shell_layer
from support.sandbox_blocks import needs_bubbles
from support.small_vaults import card, make_vault

HERE = Path(__file__).parents[1] / "data" / "programs"
REAL = Path(__file__).parents[2].parent / "shared" / "data" / "participants.tsv"
pytestmark = [
    needs_bubbles,
    pytest.mark.slow,
    pytest.mark.skipif(not REAL.exists(), reason="the shared folder of data is absent"),
    pytest.mark.skipif(
        shutil.which("mmdebstrap") is None,
        reason="mmdebstrap is not installed: `make system` brings it",
    ),
]
PACKAGES = (
    "jupyter-nbconvert", "make", "octave", "openjdk-17-jdk-headless", "python3-ipykernel",
    "python3-pandas", "python3-sklearn", "r-cran-dplyr", "r-cran-jsonlite", "r-cran-optparse",
)  # fmt: skip
CARD = """
unit = "participant_id"
people = "sleepers"
budget = { epsilon = 1000, delta = 0 }
nulls = ["n/a"]
[bids]
people = 60
person_mb = 1
files = ["func/{sub}_task-rest_events.tsv"]
[ask]
who = ["researchers"]
[columns.Height]
type = "number"
lower = 140
upper = 200
[columns.Weight]
type = "number"
lower = 30
upper = 120
"""
BLOCKS = 4
OUTPUT = {
    "name": "height", "lower": 140, "upper": 220, "step": 0.01, "path": "results.tsv",
    "at": [0, "mean"],
}  # fmt: skip
# without a file: the image's own program
PROGRAMS = {
    "mean_height.py": "isolated",
    "mean_height.R": "isolated",
    "octave.sh": "isolated",
    "bids_app.py": "isolated",
    "make.sh": "isolated",
    "runscript": "isolated",
    "notebook.sh": "batch",
    "cross_validation.py": "batch",
    "jar": "batch",
}


@dataclass(frozen=True)
class Place:
    """A vault with the real table, and the images that its operator has added, by name."""

    vault: OpenVault
    layouts: dict[str, tuple[Path, str]]
    images: dict[str, str]
    twin: Path


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        root.chmod(0o755)
        layouts = _built(root / "images")
        kept = Environments()
        images = {name: kept.add_image(*found).name for name, found in layouts.items()}
        made = make_vault(root / "vault")
        change_settings(Path(made), timing="batch")
        with sfumato.open(str(made)) as vault:
            vault.house.desk.pipelines.door.sandbox._sleep = lambda _: None  # type: ignore[attr-defined]  # of SandboxPool
            vault.add("sleepers", str(_study(root / "study")), card(CARD))
            vault.enrol("ria", "researchers")
            twin = Path(vault["sleepers"].twin(seed="seven").save(str(root / "twin.zip")))
            yield Place(vault, layouts, images, twin)
        for name in images.values():
            kept.remove(name)


def _study(folder: Path) -> Path:
    """Write the real participants, each with a file of two lines."""
    table = pd.read_csv(REAL, sep="\t", dtype=str)
    folder.mkdir()
    table[["participant_id", "Height", "Weight"]].to_csv(
        folder / "participants.tsv", sep="\t", index=False, na_rep="n/a"
    )
    (folder / "dataset_description.json").write_text('{"Name": "Sleep", "BIDSVersion": "1.8.0"}')
    for name in table["participant_id"]:
        file = folder / name / "func" / f"{name}_task-rest_events.tsv"
        file.parent.mkdir(parents=True)
        file.write_text("onset\tduration\n0\t300\n")
    return folder


def _built(folder: Path) -> dict[str, tuple[Path, str]]:
    """Build an image of Debian's packages with a jar, and a small one with a start script."""
    folder.mkdir()
    root = folder / "root.tar"
    jar = "cd /opt && javac Heights.java && jar cfe heights.jar Heights Heights.class"
    told = [
        "mmdebstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}",
        f"--customize-hook=copy-in {HERE / 'Heights.java'} /opt",
        f"--customize-hook=chroot \"$1\" sh -c '{jar}'",
    ]  # fmt: skip
    subprocess.run([*told, "bookworm", str(root)], check=True, capture_output=True)
    layers = [root.read_bytes()]
    root.unlink()
    script = _tar({
        "opt/tool/run": (HERE / "runscript.sh").read_bytes(),
        "opt/tool/environment": b"LC_ALL=C.UTF-8; export LC_ALL\n",
        "opt/tool/bin/heights": (HERE / "heights.sh").read_bytes(),
    })  # fmt: skip
    plain = layout(folder / "plain", layers, settings={}, packed=False)
    started = layout(
        folder / "runscript", [shell_layer(), script], entry=["/opt/tool/run"],
        settings={"LD_LIBRARY_PATH": "/lib64"}, packed=False,
    )  # fmt: skip
    return {"plain": (folder / "plain", plain), "runscript": (folder / "runscript", started)}


def _tar(files: dict[str, bytes]) -> bytes:
    text = io.BytesIO()
    with tarfile.open(fileobj=text, mode="w") as tar:
        for name, content in files.items():
            info, _ = member(name, content, mode=0o755)
            tar.addfile(info, io.BytesIO(content))
    return text.getvalue()


def source_of(name: str) -> str:
    if name == "jar":
        return '#!/bin/sh\nexec java -jar /opt/heights.jar "$@"\n'
    return "" if name == "runscript" else (HERE / name).read_text()


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_goes_from_the_look_alike_to_a_private_answer(name: str, place: Place) -> None:
    timing = PROGRAMS[name]
    image = name if name in place.images else "plain"
    kind = "bids" if name == "bids_app.py" else "program"
    limits = {"cpu_s": 100, "memory_mb": 2048, "disk_mb": 64, "timing": timing}
    brought = ("image", str(place.layouts[image][0]), place.layouts[image][1])
    text = {"source": source_of(name), "kind": kind}
    tried = try_program(text, str(place.twin), [OUTPUT], brought=brought, limits=limits)
    # the twin's invented events have more lines than the real ones
    assert tried["would_fail"] == "", tried
    ria = OpenVault(place.vault.house, "ria")
    handed_in: Any = ria.call("submit-pipeline", {
        "data_set": "sleepers", "source": source_of(name), "name": "main", "outputs": [OUTPUT],
        "kind": kind,
        "environment": place.images[image], "columns": ["Height", "Weight"],
    })  # fmt: skip
    one = {"data_set": "sleepers", "pipeline": handed_in["digest"]}
    place.vault.call("decide-pipeline", {
        **one, "state": "approved", "most_epsilon": 100, "timing": timing,
    })  # fmt: skip
    terms = {**one, "epsilon": 100, "blocks": BLOCKS, "cpu_s": 100}
    if timing == "batch":  # time enough on a machine that does other things too
        terms["job_s"] = 400
    error = ria.call("price-pipeline", terms)["error"]["height"]  # type: ignore[index]
    said: Any = ria.call("run-pipeline", terms)
    (value,), ((low, high),) = said["rows"][0], said["interval"][0]
    assert said["receipt"]["timing"].startswith(timing)
    assert low <= value <= high
    assert high - low <= 2 * error + 1e-9
    # blocks of 15 people differ from everybody by chance alone; a failed block would count as 180
    real = pd.read_csv(REAL, sep="\t")["Height"].clip(140, 200)
    assert abs(value - real.mean()) < 4 * real.std() / np.sqrt(len(real))
    assert abs(value - 180) > error


def test_a_program_that_fails_is_named_before_it_is_handed_in(place: Place) -> None:
    limits = {"cpu_s": 100, "memory_mb": 2048, "disk_mb": 64}
    brought = ("image", str(place.layouts["plain"][0]), place.layouts["plain"][1])
    tried = try_program(
        source_of("fails.py"), str(place.twin), [OUTPUT], brought=brought, limits=limits
    )
    assert "nilearn" in str(tried["would_fail"])
