"""Slow tests are run in pieces: what was run least lately comes first, and each is recorded."""

from __future__ import annotations

from pathlib import Path

from tools.slow_tests import Line, in_turn, read_record, write_record


def line(file: str, date: str) -> Line:
    return Line(file, date, "abc", 1, 0, 0, 5)


def test_files_without_a_record_come_first_and_then_the_oldest(tmp_path: Path) -> None:
    record, order = tmp_path / "record.tsv", []
    write_record(record, [line("b.py", "2026-11-02"), line("c.py", "2026-11-01"), line("z", "x")])

    def run(file: str) -> Line:
        order.append(file)
        return line(file, "2026-11-26")

    in_turn(["a.py", "b.py", "c.py"], record, 1, run)
    assert order == ["a.py", "c.py", "b.py"]
    known = read_record(record)  # a file that is gone has no line any more
    assert {file: one.date for file, one in known.items()} == dict.fromkeys(
        ("a.py", "b.py", "c.py"), "2026-11-26"
    )


def test_no_file_is_begun_after_the_time_is_over(tmp_path: Path) -> None:
    ran = in_turn(["a.py"], tmp_path / "record.tsv", -1, lambda file: line(file, "2026-11-26"))
    assert ran == []
