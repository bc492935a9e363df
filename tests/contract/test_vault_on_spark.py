"""A vault whose rows are asked in Spark, in one process and on a standalone cluster."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest

import sfumato
from sfumato import Refused
from sfumato.app.doctor import checkup
from sfumato.engines.shared.engine_address import SparkAddress, read_address
from sfumato.engines.spark.engine import SparkEngine, SparkLimits
from support.sandbox_blocks import hurry, needs_bubbles
from support.small_vaults import PATIENTS_CARD, card, run, write_csv, write_patients
from support.spark_cluster import QUICK, cluster, need_java

LOCAL = f"local[2]?{urlencode(QUICK)}&spark.driver.memory=1024m&spark.sql.shuffle.partitions=1"
TABLES = """
unit = "who"
budget = { epsilon = 1000 }
[columns.cost]
type = "integer"
lower = 0
upper = 100
[tables.people]
limits = { rows = 10000, rows_per_person = 1 }
columns = { sex = { type = "text", keys = ["f", "m"] } }
"""
JOINED = "SELECT sex, COUNT(*), SUM(cost) FROM visits v JOIN people p ON v.who = p.who GROUP BY sex"


def test_a_vault_on_a_spark_in_one_process(tmp_path: Path) -> None:
    need_java()
    folder = tmp_path / "vault"
    sfumato.create(folder, anchor=tmp_path / "a", engine=LOCAL)
    with sfumato.open(folder) as vault:
        engine = vault.house.engine
        assert isinstance(engine, SparkEngine)
        vault.add("clinic", write_patients(tmp_path / "p.csv"), card(PATIENTS_CARD))
        visits = write_csv(
            tmp_path / "v.csv", ("who", "cost"), ((f"p{i % 80}", 7) for i in range(400))
        )
        people = write_csv(
            tmp_path / "s.csv", ("who", "sex"), ((f"p{i}", "fm"[i % 2]) for i in range(80))
        )
        vault.add("visits", visits, card(TABLES), tables={"people": people})
        first = vault["clinic"].count().ask(epsilon=0.9)
        assert first.rows[0][0] == pytest.approx(200, abs=40)
        assert vault["clinic"].count().ask(epsilon=0.9).rows == first.rows
        for _, count, total in vault["visits"].ask(JOINED, epsilon=100).rows:
            assert count == pytest.approx(40, abs=10)
            assert total == pytest.approx(280, abs=300)
        before = set((folder / "tables").iterdir())
        other = {**card(PATIENTS_CARD), "people": "others"}
        with pytest.raises(Refused) as refused:
            vault.add("copy", tmp_path / "p.csv", other)
        assert refused.value.code == "same-people"
        assert set((folder / "tables").iterdir()) == before
        assert engine.self_test() == ()
        with pytest.raises(Refused) as spent:
            vault["clinic"].count().ask(epsilon=2)
        assert spent.value.code == "budget-exceeded"


def how_many(rows: Any) -> dict[str, float]:
    return {"people": rows["patient_id"].nunique(), "ages": rows["age"].sum()}


@needs_bubbles
def test_programs_run_on_the_rows_of_a_vault_on_spark_beside_the_vault(tmp_path: Path) -> None:
    folder = tmp_path / "vault"
    sfumato.create(folder, anchor=tmp_path / "a", engine=LOCAL)
    outputs = {"people": (0, 200, 1), "ages": (0, 20_000, 1)}
    with sfumato.open(folder) as vault:
        many = {**card(PATIENTS_CARD), "budget": {"epsilon": 1000}, "caps": {}}
        vault.add("clinic", write_patients(tmp_path / "p.csv"), many)
        hurry(vault)
        answer = vault["clinic"].run(
            how_many, outputs=outputs, epsilon=900, blocks=4, cpu_s=3, columns=["age"]
        )
        ages = sum(20 + n % 60 for n in range(200)) / 4
        assert list(answer.rows[0]) == pytest.approx([50, ages], abs=250)  # 20 scales of the noise
        assert answer.rows[0][0] == pytest.approx(50, abs=3)
        assert answer.guarantee == "central-dp"
        assert vault["clinic"].budget["spent"]["epsilon"] == 900
        assert list((folder / "runs").iterdir()) == []


@pytest.mark.slow
def test_a_killed_spark_is_replaced(tmp_path: Path) -> None:
    need_java()
    sfumato.create(tmp_path / "vault", anchor=tmp_path / "a", engine=LOCAL)
    with sfumato.open(tmp_path / "vault") as vault:
        engine = vault.house.engine
        assert isinstance(engine, SparkEngine)
        vault.add("clinic", write_patients(tmp_path / "p.csv"), card(PATIENTS_CARD))
        pid = engine.worker_pid()
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        time.sleep(0.5)
        assert vault["clinic"].mean("age").ask(epsilon=0.05).rows


@pytest.mark.slow
def test_a_vault_on_a_standalone_cluster_by_the_command_line(tmp_path: Path) -> None:
    with cluster() as place:
        assert place.secret is not None
        home, folder = {"HOME": str(tmp_path)}, tmp_path / "vault"
        master = place.master.replace("//", f"//:{quote(place.secret)}@")
        conf = urlencode((*place.conf, *QUICK))
        (tmp_path / "card.toml").write_text(PATIENTS_CARD)
        rows = str(write_patients(tmp_path / "p.csv"))
        count = "SELECT COUNT(*) AS n FROM clinic"
        said = [
            run(folder, "init", str(folder), SFUMATO_ENGINE=f"{master}?{conf}", **home),
            run(folder, "add", "clinic", rows, "--card", str(tmp_path / "card.toml"), **home),
            run(folder, "ask", "clinic", count, "--epsilon", "1", "--json", **home),
            run(folder, "doctor", **home),
        ]
    assert [done.returncode for done in said] == [0] * 4, said
    assert json.loads(said[2].stdout)["rows"][0][0] == pytest.approx(200, abs=40)
    assert "Spark answers" in said[3].stdout
    assert all(place.secret not in done.stdout + done.stderr for done in said)


@pytest.mark.slow
def test_a_spark_that_is_set_otherwise_is_seen() -> None:
    need_java()
    odd = (*QUICK, ("spark.sql.ansi.enabled", "false"), ("spark.io.encryption.enabled", "false"))
    engine = SparkEngine(bytes(32), SparkAddress("local[1]", conf=odd), memory_mb=512)
    assert set(engine.self_test()) == {"spark.sql.ansi.enabled", "spark.io.encryption.enabled"}
    engine.close()


def test_a_cluster_that_is_not_there_fails_one_question(tmp_path: Path) -> None:
    need_java()
    folder = tmp_path / "vault"
    sfumato.create(folder, anchor=tmp_path / "a", engine="spark://:word-of-it@127.0.0.1:9")
    assert "word-of-it" not in (folder / "vault.json").read_text()
    assert (folder / "keys" / "engine.json").stat().st_mode & 0o077 == 0
    with sfumato.open(folder) as vault:
        engine = vault.house.engine
        assert isinstance(engine, SparkEngine)
        assert "word-of-it" not in repr(vault.house)
        vault.add("clinic", write_patients(tmp_path / "p.csv"), card(PATIENTS_CARD))
        engine._limits = SparkLimits(deadline_s=4)
        with pytest.raises(Refused) as refused:
            vault["clinic"].count().ask(epsilon=0.5)
        assert refused.value.code == "question-failed"
        assert "word-of-it" not in str(refused.value)
        assert vault["clinic"].budget["spent"]["epsilon"] == 0.5
        assert vault["clinic"].count().price(epsilon=0.5)["epsilon"] == 0.5


def test_an_address_says_where_and_how_much_and_nothing_else() -> None:
    assert read_address("duckdb") is None
    assert read_address("local[2]") == SparkAddress("local[2]")
    found = read_address("spark://:a%20b@host:7077?driver=10.0.0.2&spark.cores.max=4")
    conf = (("spark.cores.max", "4"),)
    assert found == SparkAddress("spark://host:7077", "10.0.0.2", "a b", conf)
    assert "a b" not in repr(found)


@pytest.mark.parametrize(
    ("address", "code"),
    [
        ("spark://host:7077", "engine-unsafe"),
        ("local[2]?spark.authenticate=false", "engine-unavailable"),
        ("local[2]?spark.sql.ansi.enabled=false", "engine-unavailable"),
        ("local[2]?spark.sql.session.timeZone=CET", "engine-unavailable"),
        ("local[2]?spark.executor.memory=1g%0Aspark.ui.enabled", "engine-unavailable"),
        ("local[2]?driver=x%0Ay", "engine-unavailable"),
        ("spark://:word-of-it%0Aspark.ui.enabled@host:1", "engine-unavailable"),
        ("spark://:word-of-it@host", "engine-unavailable"),
        ("yarn", "engine-unavailable"),
        ("", "engine-unavailable"),
    ],
)
def test_an_odd_address_is_refused_and_not_repeated(address: str, code: str) -> None:
    with pytest.raises(Refused) as refused:
        read_address(address)
    assert refused.value.code == code
    assert "word-of-it" not in str(refused.value)


def test_the_doctor_starts_a_vaults_own_engine(tmp_path: Path) -> None:
    sfumato.create(tmp_path / "vault", anchor=tmp_path / "a")
    found = {name: (well, says) for name, well, says, _ in checkup(str(tmp_path / "vault"))}
    assert found["its engine"] == (True, "DuckDB answers, and blocks every forbidden action")


ALONE = """
import sys, tomllib
from decimal import Decimal
import sfumato
folder, rows, card, *hidden = sys.argv[1:]
sys.modules.update({name: None for name in hidden})
sfumato.create(folder + "/vault", anchor=folder + "/a")
with sfumato.open(folder + "/vault") as vault:
    vault.add("clinic", rows, tomllib.loads(card, parse_float=Decimal))
    vault["clinic"].count().ask(epsilon=0.5)
    vault.house.engine.self_test()
print([m for m in sys.modules if m.split(".")[0] in ("psycopg", "pyspark", "py4j")
    and sys.modules[m] is not None])
for address in ("postgresql://owner@/none", "local[2]"):
    try:
        sfumato.create(folder + "/other", anchor=folder + "/b", engine=address)
    except sfumato.Refused as refused:
        print(refused.code, refused.next_step)
"""


def test_a_vault_on_duckdb_imports_no_other_driver_and_works_without_them(tmp_path: Path) -> None:
    rows = str(write_patients(tmp_path / "p.csv"))
    said = {}
    for hidden in ((), ("psycopg", "pyspark")):
        folder = tmp_path / f"without-{len(hidden)}"
        folder.mkdir()
        words = [sys.executable, "-c", ALONE, str(folder), rows, PATIENTS_CARD, *hidden]
        done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=120)
        said[len(hidden)] = done.stdout.splitlines()
    assert said[0][0] == said[2][0] == "[]"
    assert [line.partition(" In this checkout")[0] for line in said[2][1:]] == [
        'not-installed Install it with pip install "sfumato[postgres]".',
        'not-installed Install it with pip install "sfumato[spark]".',
    ]
