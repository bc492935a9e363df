"""A real standalone Spark cluster on loopback: a master and two workers, gone after the tests."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sfumato.engines.shared.engine_address import SparkAddress
from sfumato.engines.spark.engine import SparkLimits

# For tables of a hundred rows, compiling every question costs more than asking it.
QUICK = (
    ("spark.sql.codegen.wholeStage", "false"),
    ("spark.sql.codegen.factoryMode", "NO_CODEGEN"),
    ("spark.sql.adaptive.enabled", "false"),
    ("spark.sql.files.minPartitionNum", "1"),
)
SMALL = SparkLimits(memory_mb=1024, partitions=1, deadline_s=600)
# A JVM that lives for a minute is not worth its second compiler: a third of its processor time.
_SHORT = ("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
_HOST = "127.0.0.1"
_SECRET = "a secret of the tests"  # noqa: S105  # of a cluster that lives for a minute


def local_place() -> SparkAddress:
    """Return a Spark in one process, for small tables."""
    need_java()
    return SparkAddress("local[2]", conf=(*QUICK, _SHORT))


def need_java() -> None:
    """Skip without Java; in CI, fail."""
    if shutil.which("java"):
        return
    if os.environ.get("CI") == "true":
        pytest.fail("Java is missing in CI: run `make system`")
    pytest.skip("Java is not installed: run `make system`")


@contextmanager
def cluster() -> Iterator[SparkAddress]:
    """Start a master and two workers that know a secret; stop them in the end."""
    need_java()
    folder = Path(tempfile.mkdtemp(prefix="sfumato-cluster-"))
    port = _free_port()
    master = f"spark://{_HOST}:{port}"
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        ports = ("--host", _HOST, "--port", str(port), "--webui-port", "0")
        stack.enter_context(_running(folder / "master", "master.Master", *ports))
        _wait_for(port)
        for number in range(2):
            words = ("--host", _HOST, "--webui-port", "0", "--cores", "1", "--memory", "1g", master)
            stack.enter_context(_running(folder / f"worker{number}", "worker.Worker", *words))
        conf = (
            ("spark.executor.memory", "768m"),
            ("spark.cores.max", "2"),
            ("spark.executor.cores", "1"),
        )
        yield SparkAddress(master, secret=_SECRET, conf=conf)


@contextmanager
def _running(folder: Path, name: str, *words: str) -> Iterator[None]:
    import pyspark

    home = Path(pyspark.__file__).parent
    folder.mkdir(mode=0o700)
    settings = f"spark.authenticate true\nspark.authenticate.secret {_SECRET}\n"
    (folder / "spark-defaults.conf").write_text(f"{settings}spark.network.crypto.enabled true\n")
    (folder / "log4j2.properties").write_text("rootLogger.level = off\n")
    environment = {
        "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
        "SPARK_HOME": str(home),
        "SPARK_CONF_DIR": str(folder),
        "SPARK_LOCAL_IP": _HOST,
        "SPARK_LOCAL_DIRS": str(folder),
        "SPARK_WORKER_DIR": str(folder / "work"),
        "SPARK_DAEMON_MEMORY": "512m",
    }
    if "JAVA_HOME" in os.environ:
        environment["JAVA_HOME"] = os.environ["JAVA_HOME"]
    command = ["setpriv", "--pdeathsig=INT", "--", str(home / "bin" / "spark-class")]
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            [*command, f"org.apache.spark.deploy.{name}", *words],
            env=environment, cwd=folder, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)  # workers end their executors
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)


def _wait_for(port: int) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        with contextlib.suppress(OSError), socket.create_connection((_HOST, port), 1):
            return
        time.sleep(0.1)
    raise TimeoutError("the Spark master did not start")


def _free_port() -> int:
    with socket.socket() as found:
        found.bind((_HOST, 0))
        port: int = found.getsockname()[1]
        return port
