"""The benchmark page: goals, verdicts, winners and shares of the disk limits, computed from measured samples."""

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from cordwood.bench.goals import (
    LINKEDIN,
    RATIOS,
    against_kafka,
    against_limit,
    at_best,
    held_back,
    shares,
    verdicts,
    winner,
)
from cordwood.bench.limits import DISK_WRITE, FLUSH_P50, FLUSH_P99, FLUSHES, LOOPBACK, MachineLimits
from cordwood.bench.lines import LINES, GeneratorMode, LineOutcome, figures, fitting
from cordwood.bench.measured import MeasuredCluster, MeasuredRun
from cordwood.bench.page import files, page
from cordwood.bench.report import sentences
from cordwood.bench.rounds import Samples

ABOUT = {
    "at": "2026-11-22T03:42:01+00:00",
    "machine": {"cores": 2, "processor": "Planted", "memory_mb": 25_276, "system": "Linux", "python": "3.11.7"},
    "disk": "/dev/planted (ext4), mounted at /",
    "generator": "franz-go",
    "scale": 1.0,
    "rounds": 3,
    "versions": {"cordwood": "0.1.0", "kafka": "4.2.0"},
    "notes": ["A planted note."],
}
LARGE, ACK, MANY = "1 producer, 1 KB", "latency at 1,000/s, ack p50", "16 connections, 1 in flight"
LINKEDIN_SYNC = "1 producer, 100 B"


def rate(*values: float) -> Samples:
    return Samples("MB/s", True, list(values), {DISK_WRITE: 3.0, LOOPBACK: 3.0})


def wait(*values: float) -> Samples:
    return Samples("ms", False, list(values), {FLUSH_P50: 1.0})


def many(*values: float) -> Samples:
    return Samples("records/s", True, list(values), {FLUSHES: 1.0})


@pytest.fixture
def measured() -> MeasuredRun:
    """Return results of 3 brokers: large records 300 MB/s to Kafka's 100, acks 2 ms to 12, many connections 0.5."""
    results = {
        LINKEDIN_SYNC: {"cordwood": Samples("M records/s", True, [0.4, 0.5, 0.9])},
        LARGE: {"cordwood": rate(290.0, 300.0, 310.0), "kafka": rate(95.0, 100.0, 110.0)},
        ACK: {"cordwood": wait(2.0), "kafka": wait(12.0)},
        MANY: {"cordwood": many(1000.0), "kafka": many(2000.0)},
    }
    flushes = {FLUSH_P50: [0.5], FLUSH_P99: [0.9], FLUSHES: [4000.0]}
    limits = MachineLimits({DISK_WRITE: [1000.0, 1200.0, 1400.0], LOOPBACK: [3000.0], **flushes})
    return MeasuredRun(ABOUT, limits, [MeasuredCluster(3, results)])


def row(text: str, name: str, heading: str) -> str:
    """Return the table row `name` below the heading."""
    below = text[text.index(f"{heading}\n") :]
    return next(line for line in below.splitlines() if line.startswith(f"| {name} |"))


def test_what_was_asked_of_kafka_is_judged_by_the_medians(measured: MeasuredRun) -> None:
    large, ack = against_kafka(measured.parts[0], LARGE), against_kafka(measured.parts[0], ACK)
    assert large is not None
    assert ack is not None
    assert (large.reached, large.asked, large.word) == (3.0, 2.5, "passed")
    assert (ack.reached, ack.asked, ack.word) == (6.0, 8.0, "falls short")
    assert against_kafka(measured.parts[0], LINKEDIN_SYNC) is None


def test_what_is_reached_exactly_is_passed_and_a_hair_less_is_not(measured: MeasuredRun) -> None:
    part = measured.parts[0]
    part.results[LARGE] = {"cordwood": rate(250.0), "kafka": rate(100.0)}
    exact = against_kafka(part, LARGE)
    part.results[LARGE] = {"cordwood": rate(249.99), "kafka": rate(100.0)}
    less = against_kafka(part, LARGE)
    assert exact is not None
    assert less is not None
    assert (exact.word, less.word) == ("passed", "falls short")


def test_a_goal_within_the_spread_of_the_rounds_is_level(measured: MeasuredRun) -> None:
    part = measured.parts[0]
    part.results[LARGE] = {"cordwood": rate(240.0, 260.0), "kafka": rate(99.0, 100.0)}
    level = against_kafka(part, LARGE)
    assert level is not None
    assert (level.word, level.is_passed, level.is_short) == ("level", False, False)
    assert f"Level: {LARGE} (2.51 of 2.5, Kafka)." in page(measured)


def test_systems_whose_rounds_overlap_are_level() -> None:
    assert winner(rate(90.0, 110.0), rate(100.0, 120.0)) == "level"
    assert winner(rate(130.0, 140.0), rate(100.0, 120.0)) == "ours"
    assert winner(wait(3.0, 4.0), wait(1.0, 2.0)) == "theirs"
    assert winner(wait(1.0), wait(2.0)) == "ours"  # one round has no known spread


def test_linkedins_figures_are_context_and_no_goals(measured: MeasuredRun) -> None:
    assert {verdict.against for verdict in verdicts(measured.parts[0], measured.limits)} == {"Kafka", DISK_WRITE}


def test_a_share_of_the_disk_counts_every_replica(measured: MeasuredRun) -> None:
    part, limits = measured.parts[0], measured.limits
    assert shares(part.results[LARGE]["cordwood"], limits) == {DISK_WRITE: 0.75, LOOPBACK: 0.3}
    verdict = against_limit(part, LARGE, limits)
    assert verdict is not None
    assert (verdict.asked, verdict.word) == (0.6, "passed")
    assert held_back(part, limits, DISK_WRITE) == [LARGE]
    assert held_back(part, limits, LOOPBACK) == []


def test_of_a_wait_the_share_is_that_of_one_flush(measured: MeasuredRun) -> None:
    assert shares(measured.parts[0].results[ACK]["cordwood"], measured.limits) == {FLUSH_P50: 0.25}


def test_every_goal_and_every_figure_of_linkedin_has_its_line() -> None:
    waits = {"p50": 1.0, "p99": 2.0, "p999": 3.0, "max": 4.0}
    outcome = LineOutcome(1_000_000, 0, 1.0, waits, waits, 1.0, 1.0)
    for replicas in (1, 3):
        lines = [line for line in fitting(LINES, replicas, has_java=True) if line.mode is not GeneratorMode.JAVA]
        names = {figure.name for line in lines for figure in figures(line, outcome, replicas)}
        assert {name for count, name in [*RATIOS, *LINKEDIN] if count == replicas} <= names


def test_the_page_says_who_wins_and_what_falls_short(measured: MeasuredRun) -> None:
    text = page(measured)
    worth = "### 3 brokers, 3 replicas: what it is worth"
    assert row(text, LARGE, worth) == (
        f"| {LARGE} | 3 | 2.5: passed |  | disk write 75%, loopback 30%; 60% asked: passed |"
    )
    assert "| 6 | 8: falls short |" in row(text, ACK, worth)
    assert "| 0.5, Kafka wins | 3: falls short |" in row(text, MANY, worth)
    assert "| 0.422 |" in row(text, LINKEDIN_SYNC, worth)
    assert "Fallen short of: latency at 1,000/s, ack p50 (6 of 8, Kafka); 16 connections" in text


def test_beside_what_falls_short_stands_what_a_flush_before_the_answer_leaves(measured: MeasuredRun) -> None:
    part, limits = measured.parts[0], measured.limits
    part.results[ACK]["cordwood, os"] = wait(1.0)
    part.results[MANY]["cordwood, os"] = many(8000.0)
    part.results[LARGE]["cordwood, os"] = rate(900.0)
    assert at_best(part, ACK, limits) == 8.0  # Kafka's 12 ms / (1 ms + a flush of 0.5 ms)
    assert at_best(part, MANY, limits) == 4.0  # one flush may serve all connections: 8,000/s
    assert at_best(part, LARGE, limits) == 4.0  # a third of the disk's 1,200 MB/s
    text = page(measured)
    worth = "### 3 brokers, 3 replicas: what it is worth"
    assert "| 6 | 8: falls short, 8 at best |" in row(text, ACK, worth)
    assert "2.5: passed |" in row(text, LARGE, worth)
    assert "more than this code can do here" not in text
    part.results[ACK]["cordwood, os"] = wait(1.5)
    assert "flushes before it answers: latency at 1,000/s, ack p50 (6 of 8)." in page(measured)


def test_what_was_reached_can_be_done_whatever_another_run_says(measured: MeasuredRun) -> None:
    part = measured.parts[0]
    part.results[ACK]["cordwood, os"] = wait(9.0)
    assert at_best(part, ACK, measured.limits) == 6.0


def test_without_a_wait_for_the_disk_there_is_no_best(measured: MeasuredRun) -> None:
    assert at_best(measured.parts[0], ACK, measured.limits) is None


def test_the_page_has_every_median_with_the_least_and_the_most(measured: MeasuredRun) -> None:
    values = row(page(measured), LARGE, "## 3 brokers, 3 replicas")
    assert values == f"| {LARGE} | MB/s | 300<br>290 to 310 | 100<br>95 to 110 |"


def test_the_page_names_what_was_run_on_what_and_which_disk_limits(measured: MeasuredRun) -> None:
    text = page(measured)
    for reported in (
        "2026-11-22, 3 rounds",
        "the commit is unknown",
        "2 cores (Planted)",
        "25 GB",
        "/dev/planted (ext4)",
        "A planted note.",
    ):
        assert reported in text
    assert f"is limited by it: {LARGE}." in text


def test_alone_nothing_is_said_of_what_was_asked(measured: MeasuredRun) -> None:
    for samples in measured.parts[0].results.values():
        samples.pop("kafka", None)
    text = page(measured)
    assert "falls short" not in text
    assert "Kafka wins" not in text
    assert "goals" not in "".join(sentences(measured))
    assert row(text, LARGE, "## 3 brokers, 3 replicas").endswith("|  | disk write 75%, loopback 30% |")


def test_a_result_from_before_the_warm_up_of_each_line_does_not_claim_it(measured: MeasuredRun) -> None:
    assert "of a line's own load" not in " ".join(page(measured).split())
    measured.about = ABOUT | {"warm_up_share": 0.1}
    assert "10% of a line's own load before that line" in " ".join(page(measured).split())


def test_a_part_of_the_work_is_called_that(measured: MeasuredRun) -> None:
    measured.about = ABOUT | {"scale": 0.02}
    assert any("these figures mean little" in sentence for sentence in sentences(measured))


def test_every_picture_is_well_formed_and_shown_once(measured: MeasuredRun) -> None:
    found = files(measured)
    pictures = [name for name in found if name.endswith(".svg")]
    assert "pictures/performance/times-3.svg" in pictures
    for name in pictures:
        ElementTree.fromstring(found[name])
        assert found["performance.md"].count(f"]({name})") == 1


def test_a_result_comes_back_from_its_file_as_it_was(measured: MeasuredRun, tmp_path: Path) -> None:
    again = MeasuredRun.load(measured.save(tmp_path))
    assert again == measured


def test_a_file_that_is_no_result_is_answered_with_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text('{"figures": []}')
    command = [sys.executable, "-m", "cordwood.bench.page", str(path), str(tmp_path)]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd="/", check=False)
    assert refused.returncode == 1
    assert "is no result of `make bench`" in refused.stderr
    assert "Traceback" not in refused.stderr
