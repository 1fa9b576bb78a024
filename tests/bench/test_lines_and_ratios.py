"""Benchmark lines: selection by name, figures, and ratios, where a ratio above 1 means that Cordwood is better."""

from dataclasses import replace

import pytest

from cordwood.bench.limits import DISK_READ, DISK_WRITE, FLUSH_P50, LOOPBACK
from cordwood.bench.lines import LINES, GeneratorMode, LineOutcome, LoadLine, chosen, figures, fitting
from cordwood.bench.measured import ratio
from cordwood.bench.rounds import KILL_AFTER_S, Samples
from cordwood.bench.second_opinion import sent


def outcome(records: int, seconds: float, broker_cpu_s: float = 1.0) -> LineOutcome:
    waits = {"p50": 1.0, "p99": 2.0, "p999": 3.0, "max": 4.0}
    return LineOutcome(records, 0, seconds, waits, waits, broker_cpu_s)


def test_a_chosen_line_brings_the_lines_that_it_needs() -> None:
    names = [line.name for line in chosen(["consumer, 1 KB"])]
    assert names == ["warm-up", "1 producer, 1 KB", "1 consumer, 1 KB"]
    assert chosen([]) == LINES


def test_a_word_that_fits_no_line_is_answered_with_the_lines() -> None:
    with pytest.raises(ValueError, match=r"No line has “nonsense” in its name\. The lines: warm-up; 1 producer"):
        chosen(["nonsense"])


def test_throughput_and_the_cost_of_a_gigabyte_come_from_one_line() -> None:
    line = LoadLine("1 producer, 1 KB", GeneratorMode.PRODUCE, "t", records=2_000_000, record_bytes=1000)
    found = {figure.name: (figure.value, figure.unit) for figure in figures(line, outcome(2_000_000, 4.0))}
    assert found == {"1 producer, 1 KB": (500.0, "MB/s"), "broker CPU, 1 producer, 1 KB": (0.5, "s/GB")}


def test_latency_gives_four_rows_of_which_less_is_better() -> None:
    line = LoadLine("latency", GeneratorMode.LATENCY, "t", rate=1000, seconds=10)
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


def test_a_leader_has_time_to_be_killed_however_small_the_scale() -> None:
    for line in LINES:
        if line.mode is GeneratorMode.FAILOVER:
            assert line.scaled(0.001).seconds > KILL_AFTER_S + 1 + line.session_ms / 1000


def test_what_is_written_three_times_takes_the_disk_three_times() -> None:
    line = LoadLine("1 producer, 1 KB", GeneratorMode.PRODUCE, "t", records=1_000, record_bytes=1000)
    figure = next(figures(line, outcome(1_000, 1.0), replicas=3))
    assert figure.uses == {DISK_WRITE: 3.0, LOOPBACK: 3.0}


def test_a_million_small_records_a_second_are_a_hundred_megabytes() -> None:
    line = LoadLine("both", GeneratorMode.BOTH, "t", records=1_000, record_bytes=100)
    figure = next(figures(line, outcome(1_000, 1.0), replicas=3))
    assert figure.uses == {DISK_WRITE: 300.0, LOOPBACK: 400.0}


def test_only_a_cold_read_comes_from_the_disk() -> None:
    line = LoadLine("1 consumer, 1 KB", GeneratorMode.CONSUME, "t", records=1_000, record_bytes=1000)
    assert next(figures(line, outcome(1_000, 1.0))).uses == {LOOPBACK: 1.0}
    cold = replace(line, is_cold=True)
    rows = list(figures(cold, outcome(1_000, 1.0)))
    assert [row.uses for row in rows] == [{DISK_READ: 1.0, LOOPBACK: 1.0}]


def test_an_ack_is_held_against_one_flush() -> None:
    line = LoadLine("latency", GeneratorMode.LATENCY, "t", rate=1000, seconds=10)
    assert next(figures(line, outcome(10_000, 10.0))).uses == {FLUSH_P50: 1.0}


def test_transactions_are_counted_by_the_second() -> None:
    line = LoadLine("transactions", GeneratorMode.TRANSACTIONS, "t", seconds=2, transaction_records=100)
    (row,) = figures(line, outcome(1_000, 2.0))
    assert (row.value, row.unit, row.more_is_better) == (500.0, "transactions/s", True)


def test_lines_that_need_replicas_or_java_are_left_out_without() -> None:
    def names(replicas: int, has_java: bool) -> set[str]:
        return {line.name for line in fitting(LINES, replicas, has_java=has_java)}

    assert names(3, True) == {line.name for line in LINES}
    failovers = {"leader killed", "leader killed, sessions of 2 s", "leader killed, sessions of 9 s"}
    assert names(3, True) - names(1, True) == {"3 producers, 100 B, acks=1"} | failovers
    assert names(1, True) - names(1, False) == {"ProducerPerformance, 100 B"}


def test_javas_last_line_is_the_one_that_counts() -> None:
    output = (
        "812345 records sent, 162469.0 records/sec (15.49 MB/sec), 41.2 ms avg latency, 312.0 ms max latency.\n"
        "3000000 records sent, 612994.7 records/sec (58.46 MB/sec), 301.42 ms avg latency, 512.00 ms max latency, "
        "310 ms 50th, 480 ms 95th, 505 ms 99th, 511 ms 99.9th.\n"
    )
    assert sent(output) == (3_000_000, 612_994.7)
    assert sent("org.apache.kafka.common.KafkaException: no broker") is None
