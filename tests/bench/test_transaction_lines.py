"""Transactions beside the same work without: ratios round by round, and open transactional ids."""

from pathlib import Path

from cordwood.bench.systems import Cordwood
from cordwood.bench.transactions.open_ids import OpenIdFigures, OpenProducers
from cordwood.bench.transactions.ratios import GROUP_COMMITS, Interleaved, Side

METRICS = """
# TYPE cordwood_flush_duration_seconds histogram
cordwood_flush_duration_seconds_bucket{le="0.001"} 3.0
cordwood_flush_duration_seconds_count 7.0
"""


def test_ratios_are_those_of_each_round() -> None:
    commits = Side("commits", megabytes_per_second=[50.0, 10.0], broker_ms_per_megabyte=[3.0, 1.0])
    flushes = Side("flushes", megabytes_per_second=[100.0, 10.0], broker_ms_per_megabyte=[1.0, 2.0])
    found = Interleaved("cordwood", 1, [commits, flushes])
    assert found.ratios("commits", "flushes") == [0.5, 1.0]
    assert found.costs("commits", "flushes") == [3.0, 0.5]


def test_group_commits_are_read_from_the_metrics() -> None:
    assert GROUP_COMMITS.findall(METRICS) == ["7.0"]


def test_missed_goals_are_sentences() -> None:
    found = OpenIdFigures(1000, 3, mb_per_100_000=[59.0, 61.0, 20.0], lost_ids=300, failover_s=2.5)
    assert found.missed() == [
        "memory: 61 MB for 100,000 ids, at most 60 MB",
        "coordinator failover: 2.50 s, at most 2 s",
    ]
    assert not OpenIdFigures(1000, 3, mb_per_100_000=[60.0] * 3, lost_ids=300, failover_s=2.0).missed()


def test_open_transactions_come_back_from_a_killed_coordinator(tmp_path: Path) -> None:
    names = [f"id-{number}" for number in range(60)]
    with Cordwood(3).running(tmp_path / "brokers") as running:
        clients = OpenProducers(running)
        clients.open(names)
        lost, seconds = clients.kill_a_coordinator(names)
    assert 20 <= lost < 60
    assert seconds > 0
