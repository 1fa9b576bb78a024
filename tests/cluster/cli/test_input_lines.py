"""Standard input split into lines, for any size of chunks."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.cluster.cli import produce
from cordwood.cluster.cli.exits import Failure


class Trickle(io.BytesIO):
    """A stream that returns a few bytes at a time, as a pipe may."""

    def __init__(self, content: bytes, step: int) -> None:
        super().__init__(content)
        self.step = step

    def read1(self, _size: int | None = -1) -> bytes:
        return self.read(self.step)


def read(content: bytes, step: int = 7) -> list[bytes]:
    return list(produce.lines(Trickle(content, step), lambda _count: None))


def test_a_last_line_without_an_end_counts() -> None:
    assert read(b"a\nb") == [b"a", b"b"]


def test_empty_lines_and_carriage_returns_are_kept() -> None:
    assert read(b"\n\r\n\xff\n") == [b"", b"\r", b"\xff"]


def test_nothing_gives_nothing() -> None:
    assert read(b"") == []


@given(st.lists(st.binary(max_size=20).filter(lambda line: b"\n" not in line)), st.integers(1, 30))
def test_lines_are_the_same_in_chunks_of_any_size(lines: list[bytes], step: int) -> None:
    assert read(b"".join(line + b"\n" for line in lines), step) == lines


def test_all_bytes_reach_the_progress_bar() -> None:
    reported: list[int] = []
    list(produce.lines(Trickle(b"abc\ndef\n", 3), reported.append))
    assert sum(reported) == 8


def test_a_line_without_an_end_does_not_fill_the_memory() -> None:
    endless = Trickle(b"x" * (produce.LINE_BYTES_MAX + (2 << 20)), 1 << 20)
    with pytest.raises(Failure, match="longer than"):
        list(produce.lines(endless, lambda _count: None))
    assert endless.tell() <= produce.LINE_BYTES_MAX + (1 << 20)
