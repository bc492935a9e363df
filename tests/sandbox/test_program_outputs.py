"""What a block says is hostile: fixed readers, clamped to a grid, the middle for all else."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from fractions import Fraction

import numpy as np
import pytest
import scipy.io
from hypothesis import given
from hypothesis import strategies as st

from sfumato.dp.refusal import Refused
from sfumato.sandbox import program_outputs
from sfumato.sandbox.program_outputs import Output, parsed_outputs, read_output, read_outputs


def said(files: Mapping[str, bytes]) -> bytes:
    return json.dumps({path: data.hex() for path, data in files.items()}).encode()


def output(
    path: str = "answer.json", *at: object, lower: object = 0, upper: object = 100
) -> Output:
    shape = {"name": "m", "lower": lower, "upper": upper, "step": 1, "path": path, "at": list(at)}
    return read_outputs([shape])[0]


def array(values: object, **how: object) -> bytes:
    file = io.BytesIO()
    np.save(file, np.array(values, **how))  # type: ignore[call-overload]  # any array at all
    return file.getvalue()


READ = [
    (output(), {"answer.json": b'{"m": 41.6}'}, 42),
    (output("a.json", "x", 1), {"a.json": b'{"x": [1, 7]}'}, 7),
    (output("r.tsv", 0, 2), {"r.tsv": b"1.5\t2\t33\n"}, 33),
    (output("r.tsv", 1, "h"), {"r.tsv": b"g\th\n1\t2\n3\t44\n"}, 44),
    (output("r.csv", 0, 1), {"r.csv": b"1, 5.4\n"}, 5),
    (output("sub/r.txt", 1), {"sub/r.txt": b"9 8\n7"}, 8),
    (output("a.npy", 1, 0), {"a.npy": array([[1, 2], [3, 4]])}, 3),
    (output("a.npy", 1, 0), {"a.npy": array([[1.0, 2.0], [3.0, 4.0]], order="F")}, 3),
    (output("a.npy"), {"a.npy": array(17, dtype=np.uint8)}, 17),
    (output("a.npy", 2), {"a.npy": array([1, 2, 9], dtype=np.float16)}, 9),
    (output(), {"answer.json": b'{"m": 1e300}'}, 100),
    (output(), {"answer.json": b'{"m": -5}'}, 0),
    (output(), {"answer.json": b'{"m": 12.5}'}, 13),
]
USELESS: list[bytes] = [
    b"", b"\x00", b"[", b"[]", b"{}", b'{"answer.json": 5}', b'{"answer.json": "zz"}',
    b"[" * 5000, said({"other.json": b"{}"}), said({"answer.json": b"{"}),
    *(said({"answer.json": b'{"m": %s}' % text}) for text in (
        b"NaN", b"Infinity", b"-Infinity", b"null", b"true", b'"7"', b"[]", b"{}", b"[1]",
    )),
    said({"answer.json": b'{"m": 1e999999999}'}), said({"answer.json": b"[" * 5000}),
    said({"answer.json": b'{"m": ' + b"9" * 5000 + b"}"}),
    said({"answer.json": b'{"m": 1e99999999999999999999}'}),
    b'{"answer.json": 1e99999999999999999999}',
    said({"answer.json": b'{"m": 0.' + b"3" * 50 + b"}"}),
    said({"answer.json": b'{"m": ' + b"9" * 41 + b"}"}),
]  # fmt: skip


@pytest.mark.parametrize("case", range(len(READ)))
def test_a_result_is_read_from_its_file(case: int) -> None:
    of, files, steps = READ[case]
    assert read_output(said(files), (of,)) == [steps]


@pytest.mark.parametrize("case", range(len(USELESS)))
def test_whatever_is_of_no_use_is_the_middle(case: int) -> None:
    assert read_output(USELESS[case], (output(),)) == [50]


@pytest.mark.parametrize("kind", ["json", "tsv", "csv", "txt", "npy"])
@given(data=st.binary(max_size=300), at=st.lists(st.integers(0, 9), max_size=3))
def test_no_file_makes_a_reader_fail(kind: str, data: bytes, at: list[int]) -> None:
    of = output(f"r.{kind}", *at)
    assert 0 <= read_output(said({of.path: data}), (of,))[0] <= 100
    assert 0 <= read_output(data, (of,))[0] <= 100


NUMBERS = st.from_regex(
    r"-?[1-9][0-9]{0,60}(\.[0-9]{1,60})?([eE][+-]?[0-9]{1,30})?", fullmatch=True
)
SHAPED = st.recursive(
    st.none() | st.booleans() | st.text(max_size=8) | NUMBERS.map(lambda text: {"raw": text}),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=4,
)


def as_text(shape: object) -> str:
    """Return JSON whose numbers stand as they were drawn."""
    if isinstance(shape, dict):
        return str(shape["raw"])
    if isinstance(shape, list):
        return "[" + ",".join(map(as_text, shape)) + "]"
    return json.dumps(shape)


@given(value=SHAPED, is_outer=st.booleans())
def test_no_json_makes_the_reader_fail(value: object, is_outer: bool) -> None:
    text = as_text(value)
    sent = f'{{"answer.json": {text}}}'.encode()
    if not is_outer:
        sent = said({"answer.json": f'{{"m": {text}}}'.encode()})
    assert 0 <= read_output(sent, (output(), output("answer.json", "m", 0)))[0] <= 100


def test_whatever_else_goes_wrong_is_the_middle(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: bytes) -> object:
        raise MemoryError

    monkeypatch.setitem(program_outputs._PARSERS, "json", fails)
    assert read_output(said({"answer.json": b'{"m": 7}'}), (output(),)) == [50]


def test_a_file_is_parsed_once_for_all_its_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[bytes] = []
    plain = program_outputs._PARSERS["json"]

    def counted(file: bytes) -> object:
        parsed.append(file)
        return plain(file)

    monkeypatch.setitem(program_outputs._PARSERS, "json", counted)
    assert read_output(said({"answer.json": b'{"m": 7}'}), (output(),) * 64) == [7] * 64
    assert len(parsed) == 1


def test_a_pickle_inside_an_array_is_never_opened() -> None:
    of = output("a.npy", 0)
    assert read_output(said({"a.npy": array([{"m": 3}], dtype=object)}), (of,)) == [50]


@given(value=st.floats(allow_nan=True, allow_infinity=True))
def test_every_number_lies_on_the_grid_within_the_range(value: float) -> None:
    of = read_outputs([{"name": "m", "lower": -3, "upper": 3, "step": "0.25"}])[0]
    assert 0 <= of.snapped(value) <= of.steps == 24


@pytest.mark.parametrize("wrong", [
    [], {}, [{"name": "m", "lower": 1, "upper": 1}], [{"name": "1m", "lower": 0, "upper": 1}],
    [{"name": "m", "lower": 0, "upper": float("nan")}], [{"name": "m", "lower": 0}],
    [{"name": "m", "lower": 0, "upper": 1, "step": "0.3"}], [{"name": "m", "upper": 1, "x": 1}],
    [{"name": "m", "lower": 0, "upper": 1, "step": 0}], [{"name": "m", "lower": 0, "upper": 1e99}],
    [{"name": "m", "lower": 0, "upper": 1, "path": "../x.json"}],
    [{"name": "m", "lower": 0, "upper": 1, "path": "x.pkl"}],
    [{"name": "m", "lower": 0, "upper": 1, "path": "/x.json"}],
    [{"name": "m", "lower": 0, "upper": 1}] * 2, [{"name": "m", "lower": 0, "upper": 1}] * 65,
    [{"name": "m", "lower": 0, "upper": 1, "step": "1e-15"}],
])  # fmt: skip
def test_what_is_not_well_declared_is_refused(wrong: object) -> None:
    with pytest.raises(Refused) as refused:
        read_outputs(wrong)
    assert refused.value.code == "bad-pipeline"


def test_what_stands_in_the_ledger_reads_as_what_was_declared() -> None:
    made = read_outputs([{"name": "m", "lower": 0.1, "upper": 220, "step": "0.01"}])
    assert read_outputs([one.as_json() for one in made]) == made
    assert made[0].step == Fraction(1, 100)


def test_an_array_with_a_long_header_is_none_for_reading_it_would_take_long() -> None:
    made = array([3.0])
    short = made[10:].split(b"\n")[0].rstrip() + b"\n"

    def padded(count: int) -> bytes:
        header = short[:-1] + b" " * count + b"\n"
        return made[:8] + len(header).to_bytes(2, "little") + header + made[-8:]

    assert read_output(said({"a.npy": padded(100)}), (output("a.npy", 0),)) == [3]
    assert read_output(said({"a.npy": padded(2000)}), (output("a.npy", 0),)) == [50]


def test_the_first_of_two_columns_of_one_name_is_meant() -> None:
    text = {"a.csv": b"n, m ,m\n1,2,3\n"}
    assert read_output(said(text), (output("a.csv", 0, "m"),)) == [2]


def image(*shape: int) -> Output:
    return read_outputs([{
        "name": "i", "lower": 0, "upper": 100, "step": 1, "path": "i.npy", "shape": list(shape),
    }])[0]  # fmt: skip


@pytest.mark.parametrize(("found", "steps"), [
    (np.array([[1, 2, 3], [4, 5, 6]]), [1, 2, 3, 4, 5, 6]),
    (np.array([[1.0, 2, 3], [4, 5, 6]], order="F"), [1, 2, 3, 4, 5, 6]),
    (np.array([[-5, 0.49, 0.5], [99.5, 100, 1e300]]), [0, 0, 1, 100, 100, 100]),
    (np.array([[np.nan, np.inf, -np.inf], [1, 2, 3]]), [50, 50, 50, 1, 2, 3]),
    (np.zeros((3, 2)), [50] * 6),
    (np.zeros(6), [50] * 6),
    (np.array([[None] * 3] * 2), [50] * 6),
])  # fmt: skip
def test_an_array_is_read_whole_clamped_and_rounded(found: object, steps: list[int]) -> None:
    assert read_output(said({"i.npy": array(found)}), (image(2, 3),)) == steps


def test_a_short_array_and_one_beside_it_do_not_move_each_other() -> None:
    files = said({"i.npy": array(np.ones((2, 3)))[:-1], "a.json": b"7"})
    assert read_output(files, (image(2, 3), output("a.json"))) == [50] * 6 + [7]
    assert read_output(b"nothing", (image(2, 3), output("a.json"))) == [50] * 7


@pytest.mark.parametrize("wrong", [
    {"shape": [0, 2]}, {"shape": [2, "2"]}, {"shape": [True]}, {"shape": [63, 64]}, {"shape": 3},
    {"shape": [2], "path": "i.json"}, {"shape": [2], "at": [0]}, {"shape": [1, 1, 1, 1, 1]},
])  # fmt: skip
def test_an_array_that_is_not_well_declared_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(Refused) as refused:
        read_outputs([{"name": "i", "lower": 0, "upper": 1, "path": "i.npy", **wrong}])
    assert refused.value.code == "bad-pipeline"


def agrees(sent: bytes, of: Output) -> bool:
    """Say whether what a trial shows of a result is what a run makes of the same bytes."""
    (shown,), (steps,) = parsed_outputs(sent, (of,)), read_output(sent, (of,))
    if not shown.is_number:
        return steps == of.middle and shown.says.startswith("no number")
    return float(shown.says.partition(",")[0]) == float(of.lower + of.step * steps)


@pytest.mark.parametrize("case", range(len(READ)))
def test_a_trial_shows_the_number_that_a_run_reads(case: int) -> None:
    of, files, _ = READ[case]
    assert parsed_outputs(said(files), (of,))[0].is_number
    assert agrees(said(files), of)


@pytest.mark.parametrize("case", range(len(USELESS)))
def test_a_trial_shows_that_what_is_of_no_use_is_no_number(case: int) -> None:
    assert not parsed_outputs(USELESS[case], (output(),))[0].is_number


@pytest.mark.parametrize("kind", ["json", "tsv", "csv", "txt", "npy", "mat"])
@given(
    data=st.binary(max_size=300) | NUMBERS.map(str.encode),
    at=st.lists(st.integers(0, 9), max_size=3),
)
def test_a_trial_and_a_run_agree_on_any_file(kind: str, data: bytes, at: list[int]) -> None:
    of = output(f"r.{kind}", *at)
    assert agrees(said({of.path: data}), of)
    assert agrees(data, of)


@given(value=SHAPED)
def test_a_trial_and_a_run_agree_on_any_json(value: object) -> None:
    assert agrees(said({"answer.json": f'{{"m": {as_text(value)}}}'.encode()}), output())


def test_a_trial_says_why_a_result_is_no_number_and_where_it_was_clamped() -> None:
    of = output("r.tsv", 0, "h")
    shown = [
        parsed_outputs(said({"r.tsv": text}), (of,))[0].says
        for text in (b"h\n1.5\n", b"h\n900\n", b"h\nn/a\n", b"x\n3\n")
    ]
    assert shown == [
        "2", "100, as it was above the range", "no number: 'n/a' in r.tsv is not a number: the "
        "program computed none, for example for a group without people",
        "no number: r.tsv has nothing at 0, h; its first line is x",
    ]  # fmt: skip
    assert parsed_outputs(b"{}", (of,))[0].says == "no number: there is no result r.tsv"
    twos = parsed_outputs(said({"i.npy": array([[1, np.nan, 3]])}), (image(1, 3), image(2, 3)))
    assert [one.is_number for one in twos] == [True, False]


def _of_version(text: str) -> bytes:
    """Return a `.mat` file with the header of that version, as MATLAB writes it."""
    version = b"\x00\x02IM" if "7.3" in text else b"\x00\x01IM"
    return text.encode().ljust(124) + version + bytes(384) + b"\x89HDF\r\n\x1a\n"


def _version_4() -> bytes:
    file = io.BytesIO()
    scipy.io.savemat(file, {"n": 1.0}, format="4")
    return file.getvalue()


MAT = "no number: r.mat cannot be read as mat"
SAVE = "so save it with -v7"


@pytest.mark.parametrize(("found", "says"), [
    (_of_version("MATLAB 7.3 MAT-file, Platform: GLNXA64, Created on: Mon Nov 02 10:00:00 2026 "
                 "HDF5 schema 1.00 ."), f"{MAT}: it was saved as version 7.3 (HDF5), {SAVE}"),
    (b"\x89HDF\r\n\x1a\n" + bytes(200), f"{MAT}: it was saved as version 7.3 (HDF5), {SAVE}"),
    (_version_4(), f"{MAT}: it was saved as version 4, {SAVE}"),
    (b"# Created by Octave 9.2.0, Mon Nov 02 10:00:00 2026 GMT\n# name: n\n",
     f"{MAT}: it was saved as Octave's own format, {SAVE}"),
    (b"Octave-1-L" + bytes(30), f"{MAT}: it was saved as Octave's own format, {SAVE}"),
    (_of_version("MATLAB 5.0 MAT-file, Platform: GLNXA64")[:130], MAT),
    (b"n = 1\n", MAT),
    (b"", MAT),
])  # fmt: skip
def test_a_trial_says_which_version_a_mat_file_has_that_cannot_be_read(
    found: bytes, says: str
) -> None:
    (shown,) = parsed_outputs(said({"r.mat": found}), (output("r.mat", "n"),))
    assert (shown.is_number, shown.says) == (False, says)
    assert read_output(said({"r.mat": found}), (output("r.mat", "n"),)) == [50]


@pytest.mark.parametrize(("found", "steps"), [
    (np.array([[1, 2], [3, 4]], dtype=">f8"), [50] * 4),
    (np.array([[1, 2], [3, 4]], dtype=">i2"), [50] * 4),
    (np.array([[1, 2], [3, 4]], dtype=np.complex128), [50] * 4),
    (np.array([[True, False], [True, True]]), [50] * 4),
    (np.array([["1", "2"], ["3", "4"]]), [50] * 4),
    (np.array([["2020-01-01"] * 2] * 2, dtype="datetime64[D]"), [50] * 4),
    (np.zeros((2, 2), dtype=[("a", "<f8")]), [50] * 4),
    (np.array([[[1, 2], [3, 4]]]), [50] * 4),
    (np.array([[1, 2], [3, 4]], dtype=np.longdouble), [50] * 4),
    (np.array([[1, 2], [3, 2**64 - 1]], dtype=np.uint64), [1, 2, 3, 100]),
    (np.array([[1, np.nan], [np.inf, -np.inf]], dtype=np.float16), [1, 50, 50, 50]),
])  # fmt: skip
def test_an_array_of_another_type_or_byte_order_is_the_middle(
    found: object, steps: list[int]
) -> None:
    assert read_output(said({"i.npy": array(found)}), (image(2, 2),)) == steps
