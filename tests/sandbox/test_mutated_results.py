"""No bytes make a reader of results fail: valid files of every kind, with any bytes changed."""

from __future__ import annotations

import gzip
import io
import json
import os
import resource
import struct
from typing import Any

import numpy as np
import pytest
import scipy.io
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.file_formats.test_images import nifti
from sfumato.sandbox.file_formats.matlab import read_matlab
from sfumato.sandbox.program_outputs import Output, parsed_outputs, read_output, read_outputs
from support.workbooks import workbook

CELLS = {"rows": ["A", "B"], "columns": ["mean", "sd"]}
TABLE: list[list[object]] = [["g", "mean", "sd"], ["A", 1, 2], ["B", 3.5, 4]]
GRID = [[1.0, 2.0], [3.0, 4.0]]
BESIDE = {"name": "beside", "lower": 0, "upper": 99, "step": 1, "path": "beside.txt", "at": [0]}


def file_of(save: Any, *given: Any) -> bytes:  # Any: numpy's and scipy's writers
    made = io.BytesIO()
    save(made, *given)
    return made.getvalue()


def text_of(between: str) -> bytes:
    return "\n".join(between.join(map(str, line)) for line in TABLE).encode()


FILES = {
    "r.tsv": text_of("\t"),
    "r.csv": text_of(","),
    "r.txt": b"1 2 3.5\n4",
    "r.json": json.dumps({"A": {"mean": 1, "sd": 2}, "B": {"mean": 3.5, "sd": 4}}).encode(),
    "l.json": json.dumps([{"g": "A", "mean": 1, "sd": 2}, {"g": "B", "mean": 3}]).encode(),
    "r.npy": file_of(np.save, np.array(GRID)),
    "r.nii": nifti(GRID),
    "s.nii": nifti(GRID, slope=2.0, above=1.0),
    "r.nii.gz": gzip.compress(nifti(GRID)),
    "r.mat": file_of(scipy.io.savemat, {"x": np.array(GRID)}),
    "r.xlsx": workbook({"S": TABLE, "T": [[1, 2], ["x", 3]]}),
}
SHAPES: dict[str, list[dict[str, Any]]] = {
    "tsv": [CELLS, {"at": [1, 1]}, {"at": [0, "mean"]}],
    "csv": [CELLS, {"at": [1, 1]}, {"at": [0, "mean"]}],
    "txt": [{"at": [0]}, {"at": [3]}],
    "json": [CELLS, {"at": ["A", "mean"]}, {"at": [0, "mean"]}],
    "npy": [CELLS, {"shape": [2, 2]}, {"at": [1, 1]}],
    "nii": [CELLS, {"shape": [2, 2]}, {"at": [1, 1]}],
    "gz": [CELLS, {"shape": [2, 2]}, {"at": [1, 1]}],
    "mat": [CELLS, {"shape": [2, 2], "at": ["x"]}, {"at": ["x", 1, 1]}],
    "xlsx": [CELLS, {"at": ["B2"]}, {"at": ["T!A1"]}, {"at": [1, 0, 1]}, {**CELLS, "at": ["T"]}],
}


def outputs_of(path: str) -> tuple[Output, ...]:
    wanted = SHAPES[path.rsplit(".", 1)[-1]]
    named = [{"name": f"o{n}", "path": path, **one} for n, one in enumerate(wanted)]
    return read_outputs([{"lower": 0, "upper": 100, "step": "0.5", **one} for one in named]
                        + [BESIDE])  # fmt: skip


@st.composite
def mutated(draw: st.DrawFn, found: bytes) -> bytes:
    """Return a file with a few of its bytes replaced, left out, repeated or added."""
    made = bytearray(found)
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(made)))
        stop = min(len(made), start + draw(st.integers(0, 6)))
        instead = draw(st.one_of(
            st.binary(max_size=8), st.just(bytes(made[start:stop]) * 2),
            st.sampled_from([b"\0" * 4, b"\xff" * 8, b'"', b"<", b"&a;", b"[" * 99, b"9" * 99]),
        ))  # fmt: skip
        made[start:stop] = instead
    return bytes(made)


def check(path: str, found: bytes) -> None:
    outputs = outputs_of(path)
    sent = json.dumps({path: found.hex(), "beside.txt": b"7".hex()}).encode()
    steps = read_output(sent, outputs)
    assert len(steps) == sum(one.count for one in outputs)
    tops = [one.steps for one in outputs for _ in range(one.count)]
    assert all(0 <= one <= top for one, top in zip(steps, tops, strict=True))
    # only the file itself is lost: a failure that nobody foresaw makes all outputs the middle
    assert steps[-1] == 7
    shown = parsed_outputs(sent, outputs)
    assert [one.name for one in shown] == [one.name for one in outputs]
    assert shown[-1].says == "7"
    assert all(len(one.says) < 300 for one in shown)
    place = 0
    for output, reading in zip(outputs, shown, strict=True):
        mine = steps[place : place + output.count]
        assert reading.is_number or mine == [output.middle] * output.count
        place += output.count


@pytest.mark.parametrize("path", FILES)
def test_a_valid_file_is_read(path: str) -> None:
    sent = json.dumps({path: FILES[path].hex()}).encode()
    assert any(one.is_number for one in parsed_outputs(sent, outputs_of(path)))


@pytest.mark.parametrize("path", FILES)
@settings(max_examples=150)
@given(data=st.data())
def test_a_mutated_file_makes_no_reader_fail(path: str, data: st.DataObject) -> None:
    check(path, data.draw(mutated(FILES[path])))


@pytest.mark.parametrize("path", FILES)
@settings(max_examples=40)
@given(found=st.binary(max_size=400))
def test_random_bytes_make_no_reader_fail(path: str, found: bytes) -> None:
    check(path, found)


@pytest.mark.parametrize("path", FILES)
def test_a_file_that_is_cut_anywhere_makes_no_reader_fail(path: str) -> None:
    for end in range(0, len(FILES[path]), 7):
        check(path, FILES[path][:end])


def test_an_array_of_very_many_dimensions_costs_nothing() -> None:
    dims = struct.pack("<65528i", *[2**31 - 1] * 65_528)
    parts = (6, struct.pack("<2I", 6, 0)), (5, dims), (1, b"x"), (9, b"")
    inside = b"".join(struct.pack("<2I", k, len(b)) + b + bytes(-len(b) % 8) for k, b in parts)
    found = bytes(124) + b"\x00\x01IM" + struct.pack("<2I", 14, len(inside)) + inside
    reader = os.fork()
    if reader == 0:
        spent = resource.getrusage(resource.RUSAGE_SELF)
        most = int(spent.ru_utime + spent.ru_stime) + 2  # its product alone takes longer
        resource.setrlimit(resource.RLIMIT_CPU, (most, most))
        os._exit(0 if not read_matlab(found) else 1)
    _, status = os.waitpid(reader, 0)
    assert os.waitstatus_to_exitcode(status) == 0
