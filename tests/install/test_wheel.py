"""The wheel alone, in an environment that has nothing else of ours, answers a question."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from packaging.metadata import Metadata
from trove_classifiers import classifiers

ROOT = Path(__file__).parents[2]
FIRST_QUESTION = """
import sys
import sfumato

sfumato.create("vault", anchor="anchor")
with open("people.csv", "w") as file:
    file.write("zip\\n" + "10001\\n10002\\n" * 50)
card = {
    "unit": "row",
    "people": "town",
    "version": "1",
    "budget": {"epsilon": 1, "delta": 0},
    "columns": {"zip": {"type": "text", "keys": ["10001", "10002"]}},
}
with sfumato.open("vault") as vault:
    vault.add("town", "people.csv", card)
    answer = vault["town"].ask("SELECT zip, COUNT(*) AS n FROM town GROUP BY zip", epsilon=1)
    print(len(answer.rows), answer.guarantee)
print(sorted({"jinja2", "pandas", "scipy", "starlette", "torch"} & set(sys.modules)))
"""


def run(*command: str, cwd: Path = ROOT, **settings: str) -> str:
    ran = subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, timeout=300, check=False, env=settings
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def build(folder: Path) -> Path:
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder))
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the interpreter of a new environment with the wheel and what it needs, no extras.

    What the locked list names is taken from this environment, file by file, so that no network is
    asked: whatever only an extra brings is absent.
    """
    from importlib import metadata

    folder = tmp_path_factory.mktemp("fresh")
    run(sys.executable, "-m", "venv", "--without-pip", str(folder))
    (place,) = (folder / "lib").glob("python*/site-packages")
    for name in locked_here():
        for file in metadata.files(name) or ():
            if ".." not in file.parts and "__pycache__" not in file.parts:
                (place / file).parent.mkdir(parents=True, exist_ok=True)
                (place / file).symlink_to(file.locate())
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(place)
    return folder / "bin" / "python"


def locked_here() -> set[str]:
    """Return the names of the locked list that are for this machine and this Python."""
    from importlib import metadata

    lines = (ROOT / "requirements" / "core.lock").read_text("utf-8").splitlines()
    named = {line.split("==")[0] for line in lines if "==" in line}
    return {name for name in named if list(metadata.distributions(name=name))}


def test_every_file_of_the_package_is_in_the_wheel(wheel: Path) -> None:
    ours = {
        path.relative_to(ROOT / "src").as_posix()
        for path in (ROOT / "src").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    packed = set(zipfile.ZipFile(wheel).namelist())
    assert ours <= packed
    assert {name.rsplit("/", 1)[-1] for name in packed - ours} == {
        "METADATA", "WHEEL", "RECORD", "entry_points.txt", "LICENSE",
    }  # fmt: skip


def test_the_wheel_says_what_a_package_index_shows(wheel: Path) -> None:
    packed = zipfile.ZipFile(wheel)
    (place,) = [name for name in packed.namelist() if name.endswith(".dist-info/METADATA")]
    said = Metadata.from_email(packed.read(place))  # refuses what an index would refuse
    assert said.name == "sfumato"
    assert said.description == (ROOT / "README.md").read_text("utf-8")
    assert said.description_content_type == "text/markdown"
    assert (said.license_expression, said.license_files) == ("Apache-2.0", ["LICENSE"])
    assert said.author
    assert said.summary
    assert said.keywords
    assert set(said.classifiers or ()) <= classifiers
    is_typed = (ROOT / "src" / "sfumato" / "py.typed").is_file()
    assert ("Typing :: Typed" in (said.classifiers or ())) == is_typed


def test_two_builds_are_the_same_byte_for_byte(wheel: Path, tmp_path: Path) -> None:
    assert build(tmp_path).read_bytes() == wheel.read_bytes()


def test_the_wheel_alone_answers_a_question(python: Path, tmp_path: Path) -> None:
    said = run(str(python), "-c", FIRST_QUESTION, cwd=tmp_path, HOME=str(tmp_path))
    assert said.splitlines() == ["2 central-dp", "[]"]


def test_importing_the_wheel_brings_no_engine_and_no_database(python: Path, tmp_path: Path) -> None:
    heavy = "{'apsw', 'click', 'cryptography', 'duckdb', 'httpx', 'numpy', 'sqlglot'}"
    code = f"import sys, sfumato; print(sorted({heavy} & set(sys.modules)))"
    assert run(str(python), "-c", code, cwd=tmp_path, HOME=str(tmp_path)) == "[]\n"


def test_without_an_extra_a_refusal_names_the_extra(python: Path, tmp_path: Path) -> None:
    entry = "import sys; from sfumato.app.command_line import main; sys.exit(main())"
    for words, extra in ((("serve", "--vault", "v"), "serve"), (("audit",), "lab")):
        ran = subprocess.run(
            [str(python), "-c", entry, *words],
            cwd=tmp_path, env={"HOME": str(tmp_path)}, capture_output=True, text=True,
            timeout=300, check=False,
        )  # fmt: skip
        assert ran.returncode == 3, ran.stdout + ran.stderr
        assert f'pip install "sfumato[{extra}]"' in ran.stderr


def test_the_doctor_of_the_wheel_alone_names_every_extra(python: Path, tmp_path: Path) -> None:
    entry = "import sys; from sfumato.app.command_line import main; sys.exit(main())"
    said = run(str(python), "-c", entry, "doctor", cwd=tmp_path, HOME=str(tmp_path))
    assert 'pip install "sfumato[serve,databases,files,frames,plot,lab,postgres,spark]"' in said
