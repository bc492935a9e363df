"""Images and MAT files of a stranger's: what they say is read, what is malformed is the middle."""

from __future__ import annotations

import gzip
import io
import json
import struct
import warnings
import zlib
from collections.abc import Callable

import numpy as np
import pytest
import scipy.io
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.dp.refusal import Refused
from sfumato.sandbox.file_formats import decompression
from sfumato.sandbox.program_outputs import Output, read_output, read_outputs

MIDDLE = 50
Bytes = Callable[[], bytes]


def output(path: str, at: list[object] | None = None, shape: tuple[int, ...] = ()) -> Output:
    said: dict[str, object] = {"name": "m", "lower": 0, "upper": 100, "step": 1, "path": path}
    return read_outputs([{**said, "at": at or [], "shape": list(shape)}])[0]


def steps(of: Output, found: bytes) -> list[int]:
    return read_output(json.dumps({of.path: found.hex()}).encode(), (of,))


def nifti(values: object, kind: str = "f4", slope: float = 1.0, above: float = 0.0) -> bytes:
    """Return an image as the standard lays it out, by its table of offsets."""
    codes = {"u1": 2, "i2": 4, "i4": 8, "f4": 16, "f8": 64, "i1": 256, "u2": 512}
    array = np.array(values, dtype="<" + kind)
    header = bytearray(352)
    struct.pack_into("<i", header, 0, 348)
    dims = [array.ndim, *array.shape, *[1] * (7 - array.ndim)]
    struct.pack_into("<8h", header, 40, *dims)
    struct.pack_into("<2h", header, 70, codes[kind], 8 * array.itemsize)
    struct.pack_into("<3f", header, 108, 352.0, slope, above)
    header[344:348] = b"n+1\0"
    return bytes(header) + array.tobytes(order="F")


def matlab(compressed: bool = False, **arrays: object) -> bytes:
    file = io.BytesIO()
    scipy.io.savemat(file, arrays, do_compression=compressed)
    return file.getvalue()


GRID = [[1.0, 2.0, 3.0], [4.0, 5.0, 60.0]]


@pytest.mark.parametrize("kind", ["u1", "i2", "i4", "f4", "f8", "i1", "u2"])
def test_an_image_is_read_in_every_kind_of_number(kind: str) -> None:
    plain, packed = nifti(GRID, kind), gzip.compress(nifti(GRID, kind))
    assert steps(output("a/b.nii", shape=(2, 3)), plain) == [1, 2, 3, 4, 5, 60]
    assert steps(output("a/b.nii.gz", shape=(2, 3)), packed) == [1, 2, 3, 4, 5, 60]
    assert steps(output("b.nii", [1, 2]), plain) == [60]


def test_an_image_in_other_units_is_read_in_its_own() -> None:
    assert steps(output("b.nii", [1, 0]), nifti(GRID, "i2", 2.0, 10.0)) == [18]
    assert steps(output("b.nii", [1, 0]), nifti(GRID, "i2", 0.0, 10.0)) == [4]
    assert steps(output("b.nii", [1, 0]), nifti(GRID, "f4", float("nan"))) == [4]
    assert steps(output("b.nii", [1, 0]), nifti(GRID, "f4", float("inf"))) == [MIDDLE]


@pytest.mark.parametrize("compressed", [False, True])
def test_arrays_of_a_mat_file_are_read_by_name(compressed: bool) -> None:
    found = matlab(
        compressed, text="words", n=np.int16(7), grid=np.array(GRID), odd={"a": 1},
        whole=np.array([[9, 8]], dtype=np.uint64),
    )  # fmt: skip
    assert steps(output("r.mat", ["grid"], (2, 3)), found) == [1, 2, 3, 4, 5, 60]
    assert steps(output("r.mat", ["grid", 1, 2]), found) == [60]
    assert steps(output("r.mat", ["n"]), found) == [7]
    assert steps(output("r.mat", ["whole", 0, 1]), found) == [8]
    for other in ("text", "odd", "none"):
        assert steps(output("r.mat", [other]), found) == [MIDDLE]


def test_a_mat_file_with_one_array_needs_no_name() -> None:
    assert steps(output("r.mat", shape=(2, 3)), matlab(grid=np.array(GRID)))[5] == 60
    assert steps(output("r.mat"), matlab(n=np.array(30.0))) == [30]
    assert steps(output("r.mat"), matlab(n=1.0, m=2.0)) == [MIDDLE]
    assert steps(output("r.mat", ["z"]), matlab(z=np.array(1 + 2j))) == [MIDDLE]


def altered(found: bytes, place: int, form: str, *values: object) -> bytes:
    made = bytearray(found)
    struct.pack_into(form, made, place, *values)
    return bytes(made)


WRONG: dict[str, tuple[Output, Bytes]] = {
    "nothing": (output("b.nii", [0, 0]), lambda: b""),
    "a header cut short": (output("b.nii", [0, 0]), lambda: nifti(GRID)[:340]),
    "numbers cut short": (output("b.nii", shape=(2, 3)), lambda: nifti(GRID)[:-1]),
    "another size": (output("b.nii", [0, 0]), lambda: altered(nifti(GRID), 0, "<i", 540)),
    "two files": (output("b.nii", [0, 0]), lambda: altered(nifti(GRID), 344, "4s", b"ni1\0")),
    "no dimension": (output("b.nii", [0, 0]), lambda: altered(nifti(GRID), 40, "<h", 0)),
    "eight of them": (output("b.nii", [0, 0]), lambda: altered(nifti(GRID), 40, "<h", 8)),
    "a negative one": (output("b.nii", [0, 0]), lambda: altered(nifti(GRID), 42, "<h", -2)),
    "colours": (output("b.nii", [0, 0]), lambda: altered(nifti(GRID), 70, "<h", 128)),
    "numbers nowhere": (
        output("b.nii", [0, 0]), lambda: altered(nifti(GRID), 108, "<f", float("nan"))
    ),
    "numbers far off": (output("b.nii", [0, 0]), lambda: altered(nifti(GRID), 108, "<f", 1e30)),
    "numbers in the header": (output("b.nii", [0, 0]), lambda: altered(nifti(GRID), 108, "<f", 8)),
    "another shape": (output("b.nii", shape=(3, 2)), lambda: nifti(GRID)),
    "no gzip": (output("b.nii.gz", [0, 0]), lambda: nifti(GRID)),
    "half a gzip": (output("b.nii.gz", [0, 0]), lambda: gzip.compress(nifti(GRID))[:-9]),
    "no mat file": (output("r.mat"), lambda: b"\0" * 200),
    "version 4": (output("r.mat"), lambda: matlab4()),
    "another machine's": (output("r.mat"), lambda: altered(matlab(n=1.0), 126, "2s", b"MI")),
    "a length too long": (output("r.mat"), lambda: altered(matlab(n=1.0), 132, "<I", 10**6)),
    "a packed nothing": (
        output("r.mat"), lambda: matlab()[:128] + struct.pack("<2I", 15, 4) + b"abcd"
    ),
}  # fmt: skip


def matlab4() -> bytes:
    file = io.BytesIO()
    scipy.io.savemat(file, {"n": 1.0}, format="4")
    return file.getvalue()


@pytest.mark.parametrize("name", sorted(WRONG))
def test_what_is_malformed_is_the_middle(name: str) -> None:
    of, found = WRONG[name]
    assert set(steps(of, found())) == {MIDDLE}


def test_what_unfolds_to_too_much_is_the_middle() -> None:
    bomb = gzip.compress(nifti(GRID) + bytes(decompression.MOST))
    assert steps(output("b.nii.gz", [0, 0]), bomb) == [MIDDLE]
    packed = zlib.compress(bytes(decompression.MOST + 1))
    found = matlab()[:128] + struct.pack("<2I", 15, len(packed)) + packed
    assert steps(output("r.mat"), found) == [MIDDLE]


def test_all_that_a_file_packs_unfolds_to_no_more_than_one_may() -> None:
    half = np.zeros(decompression.MOST // 16 - 1_000)
    two = matlab(True, first=1.0, a=half, b=half, late=2.0)
    three = matlab(True, first=1.0, a=half, b=half, c=half, late=2.0)
    assert [steps(output("r.mat", [name]), two) for name in ("first", "late")] == [[1], [2]]
    assert [steps(output("r.mat", [name]), three) for name in ("first", "late")] == [[1], [MIDDLE]]


@settings(max_examples=300)
@given(st.data())
def test_no_bytes_at_all_make_a_reader_fail(data: st.DataObject) -> None:
    path, whole = data.draw(st.sampled_from([
        ("b.nii", nifti(GRID)), ("b.nii.gz", gzip.compress(nifti(GRID))),
        ("r.mat", matlab(grid=np.array(GRID))), ("r.mat", matlab(True, grid=np.array(GRID))),
    ]))  # fmt: skip
    made = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 6))):
        made[data.draw(st.integers(0, len(made) - 1))] = data.draw(st.integers(0, 255))
    found = bytes(made[: data.draw(st.integers(0, len(made)))])
    for of in (output(path, shape=(2, 3)), output(path, [0, 0])):
        said = steps(of, found)
        assert len(said) == of.count
        assert all(0 <= one <= 100 for one in said)


def test_one_malformed_file_moves_no_other_output() -> None:
    of = output("b.nii.gz", [0, 0]), output("r.txt", [0])
    files = {"b.nii.gz": b"\x1f\x8b nothing".hex(), "r.txt": b"7".hex()}
    assert read_output(json.dumps(files).encode(), of) == [MIDDLE, 7]


@pytest.mark.parametrize(("path", "at"), [("b.nii", [0]), ("r.mat", ["a", 0]), ("r.csv", [])])
def test_an_array_is_a_whole_image_or_a_named_one(path: str, at: list[object]) -> None:
    with pytest.raises(Refused):
        output(path, at, (2, 3))


SIGNALS = {  # of NaN that signals: numpy says so on the standard error of whoever computes with it
    "<f2": struct.pack("<H", 0x7C01),
    "<f4": struct.pack("<I", 0x7F80_0001),
    "<f8": struct.pack("<Q", 0x7FF0_0000_0000_0001),
}


def as_npy(kind: str, values: bytes) -> bytes:
    file = io.BytesIO()
    np.save(file, np.frombuffer(values, dtype=kind))
    return file.getvalue()


def as_nifti(kind: str, values: bytes) -> bytes:
    return nifti([0.0], kind[1:])[: -len(values)] + values


def as_matlab(kind: str, values: bytes) -> bytes:
    plain = matlab(m=np.array([[12.5]], dtype=kind))
    return plain.replace(struct.pack("<f" if kind == "<f4" else "<d", 12.5), values)


@pytest.mark.parametrize(("path", "kind", "at", "written"), [
    ("a.npy", "<f2", [], as_npy), ("a.npy", "<f4", [], as_npy), ("a.npy", "<f8", [], as_npy),
    ("a.nii", "<f4", [], as_nifti), ("a.nii", "<f8", [], as_nifti),
    ("a.mat", "<f4", ["m"], as_matlab), ("a.mat", "<f8", ["m"], as_matlab),
])  # fmt: skip
def test_nothing_is_said_aloud_of_a_number_that_signals(
    path: str, kind: str, at: list[object], written: Callable[[str, bytes], bytes]
) -> None:
    of = output(path, at, (1, 1) if path == "a.mat" else (1,))
    found = written(kind, SIGNALS[kind])
    assert SIGNALS[kind] in found
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        assert steps(of, found) == [MIDDLE]
        assert heard == []
        np.frombuffer(SIGNALS[kind], dtype=kind) - 1  # it does speak where nobody hushes it
    assert [one.category for one in heard] == [RuntimeWarning]
