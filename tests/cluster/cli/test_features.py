"""`cordwood feature`: the levels of one broker, and updates that change nothing. tests/upgrade has the ones that do."""

from broker_fixture import RunningBroker
from command import Outcome, in_process

from cordwood.cluster.cli.exits import ExitCode


def run(broker: RunningBroker, *words: str) -> Outcome:
    return in_process("feature", *words, bootstrap=broker.bootstrap)


def test_levels_are_listed_for_the_cluster_and_for_each_broker(broker: RunningBroker) -> None:
    rows = run(broker, "list", "--json").json
    assert [tuple(row.values()) for row in rows] == [
        ("group.version", "cluster", "0-1", "1"),
        ("metadata.version", "cluster", "1-3", "3"),
        ("share.version", "cluster", "0-1", "1"),
        ("transaction.version", "cluster", "0-2", "2"),
        ("metadata.version", "broker 1", "1-3", ""),
    ]


def test_a_new_cluster_has_the_newest_level(broker: RunningBroker) -> None:
    assert run(broker, "upgrade").text == "metadata.version: 3 is finalized already\n"


def test_a_level_that_the_broker_does_not_support_is_refused(broker: RunningBroker) -> None:
    refused = run(broker, "upgrade", "--level", "4")
    assert refused.exit_code == ExitCode.FAILED
    assert "Broker 1 only supports versions 1-3." in refused.stderr
    lower = run(broker, "upgrade", "--level", "1")
    assert lower.exit_code == ExitCode.FAILED
    assert "Can't downgrade" in lower.stderr
