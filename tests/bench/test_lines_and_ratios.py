"""The benchmark's lines can be chosen by name, and a ratio above 1 always means that ours is better."""

import pytest

from cordwood.bench.lines import LINES, Line, Mode, Outcome, chosen, figures
from cordwood.bench.report import ratio
from cordwood.bench.rounds import Samples


def outcome(records: int, seconds: float, broker_cpu_s: float = 1.0) -> Outcome:
    waits = {"p50": 1.0, "p99": 2.0, "p999": 3.0, "max": 4.0}
    return Outcome(records, 0, seconds, waits, waits, broker_cpu_s)


def test_a_chosen_line_brings_the_lines_that_it_needs() -> None:
    names = [line.name for line in chosen(["consumer, 1 KB"])]
    assert names == ["warm-up", "1 producer, 1 KB", "1 consumer, 1 KB"]
    assert chosen([]) == LINES


def test_a_word_that_fits_no_line_is_answered_with_the_lines() -> None:
    with pytest.raises(ValueError, match=r"No line has “nonsense” in its name\. The lines: warm-up; 1 producer"):
        chosen(["nonsense"])


def test_throughput_and_the_cost_of_a_gigabyte_come_from_one_line() -> None:
    line = Line("1 producer, 1 KB", Mode.PRODUCE, "t", records=2_000_000, record_bytes=1000)
    found = {figure.name: (figure.value, figure.unit) for figure in figures(line, outcome(2_000_000, 4.0))}
    assert found == {"1 producer, 1 KB": (500.0, "MB/s"), "broker CPU, 1 producer, 1 KB": (0.5, "s/GB")}


def test_latency_gives_four_rows_of_which_less_is_better() -> None:
    line = Line("latency", Mode.LATENCY, "t", rate=1000, seconds=10)
    rows = list(figures(line, outcome(10_000, 10.0)))
    assert [row.value for row in rows] == [1.0, 2.0, 1.0, 2.0]
    assert not any(row.more_is_better for row in rows)


def test_a_ratio_above_one_is_a_win_either_way() -> None:
    assert ratio(Samples("MB/s", True, [300.0, 200.0, 100.0]), Samples("MB/s", True, [100.0])) == 2.0
    assert ratio(Samples("ms", False, [1.0]), Samples("ms", False, [3.0])) == 3.0


def test_scaled_lines_keep_their_shape() -> None:
    for line in LINES:
        scaled = line.scaled(0.1)
        assert (scaled.name, scaled.mode, scaled.record_bytes) == (line.name, line.mode, line.record_bytes)
        assert scaled.records == line.records // 10
