"""`cordwood partition`, `cordwood status` and `cordwood cluster` against one broker."""

import json
from pathlib import Path

import pytest
from broker_fixture import RunningBroker
from command import cordwood, in_process, start_cordwood

from cordwood.cluster.cli.exits import ExitCode


@pytest.fixture
def topic(broker: RunningBroker) -> str:
    """Create a topic of two partitions."""
    assert in_process("topic", "create", "t", "-p", "2", bootstrap=broker.bootstrap).exit_code == ExitCode.OK
    return "t"


def test_preferred_leaders_that_lead_already_are_left(broker: RunningBroker, topic: str) -> None:
    elected = in_process("partition", "elect", topic, bootstrap=broker.bootstrap)
    assert (elected.exit_code, elected.lines) == (ExitCode.OK, [b"t-0: not needed", b"t-1: not needed"])
    assert in_process("partition", "elect", topic, "1", "--json", bootstrap=broker.bootstrap).json == [
        {"topic": "t", "partition": 1, "ok": True, "result": "not needed"}
    ]


def test_what_is_not_there_is_not_elected(broker: RunningBroker, topic: str) -> None:
    refused = in_process("partition", "elect", topic, "0", "7", bootstrap=broker.bootstrap)
    assert refused.exit_code == ExitCode.FAILED
    assert refused.lines == [b"t-0: not needed"]
    assert "t-7" in refused.stderr
    assert "cordwood topic create none" in in_process("partition", "elect", "none", bootstrap=broker.bootstrap).stderr


def test_an_unclean_election_is_explained_before_it_is_done(broker: RunningBroker, topic: str) -> None:
    refused = in_process("partition", "elect", topic, "--unclean", bootstrap=broker.bootstrap)
    assert refused.exit_code == ExitCode.USAGE
    assert "lost permanently" in refused.stderr
    assert "--yes" in refused.stderr
    done = in_process("partition", "elect", topic, "--unclean", "--yes", bootstrap=broker.bootstrap)
    assert (done.exit_code, done.lines) == (ExitCode.OK, [b"t-0: not needed", b"t-1: not needed"])


def test_a_move_to_where_it_is_is_done_at_once(broker: RunningBroker, topic: str) -> None:
    moved = in_process("partition", "move", topic, "0", "--to", "1", "--wait", bootstrap=broker.bootstrap)
    assert (moved.exit_code, moved.text) == (ExitCode.OK, "t-0: moved\n")
    assert in_process("partition", "list-moves", "--json", bootstrap=broker.bootstrap).json == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["0", "--to", "9"], "at least one of these brokers is not registered"),
        (["7", "--to", "1"], "the partition does not exist"),
        (["0", "--cancel"], "the partition is not being moved"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_move_that_cannot_be_says_why(broker: RunningBroker, topic: str, words: list[str], said: str) -> None:
    refused = in_process("partition", "move", topic, *words, bootstrap=broker.bootstrap)
    assert refused.exit_code == ExitCode.FAILED
    assert said in refused.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["broker", "cordon", "9"],
        ["broker", "uncordon", "9"],
        ["partition", "move-dir", "t", "0", "--broker", "9", "--to", "x"],
    ],
    ids=" ".join,
)
def test_a_broker_that_does_not_run_is_named_at_once(broker: RunningBroker, words: list[str]) -> None:
    refused = in_process(*words, bootstrap=broker.bootstrap)
    assert refused.exit_code == ExitCode.FAILED
    assert "broker 9 does not run" in refused.stderr
    assert "cordwood broker list" in refused.stderr


def test_tls_to_a_listener_without_it_names_the_setting(broker: RunningBroker, tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    config.write_text("security.protocol=SSL\n")
    refused = in_process("topic", "list", "--command-config", str(config), bootstrap=broker.bootstrap)
    assert refused.exit_code == ExitCode.UNREACHABLE
    assert "check security.protocol in --command-config" in refused.stderr


def test_status_shows_the_broker_and_its_partitions(broker: RunningBroker, topic: str) -> None:
    cordwood("produce", topic, stdin=b"a\nb\n", bootstrap=broker.bootstrap)
    report = in_process("status", "--json", bootstrap=broker.bootstrap).json
    assert (report["controller"], report["under_replicated"], report["offline"]) == (1, 0, 0)
    [shown] = report["brokers"]
    assert (shown["id"], shown["address"], shown["alive"]) == (1, broker.bootstrap, True)
    assert (shown["leads"], shown["replicas"], shown["replicas_in_sync"]) == (2, 2, 2)
    assert shown["bytes"] > 0
    assert shown["log_dirs"][0]["total_bytes"] > shown["log_dirs"][0]["usable_bytes"] > 0
    assert [part["replicas"][0]["lag"] for part in report["partitions"]] == [0, 0]
    text = in_process("status", "--all", bootstrap=broker.bootstrap).text
    assert "controller 1; 2 partitions: 0 under-replicated" in text
    assert len([line for line in text.splitlines() if line.startswith("t ")]) == 2


def test_status_watches_on_while_the_broker_is_away(broker: RunningBroker) -> None:
    watching = start_cordwood("status", "--watch", "--json", bootstrap=broker.bootstrap)
    assert watching.stdout is not None
    assert watching.stderr is not None
    try:
        first = json.loads(watching.stdout.readline())
        broker.terminate()
        assert b"no broker" in watching.stderr.readline()
        broker.start()
        again = json.loads(watching.stdout.readline())
    finally:
        watching.terminate()
        watching.communicate(timeout=30)
    assert again["cluster_id"] == first["cluster_id"]


@pytest.mark.usefixtures("topic")
def test_the_only_broker_must_not_be_stopped(broker: RunningBroker) -> None:
    answer = in_process("cluster", "can-stop", "1", bootstrap=broker.bootstrap)
    assert answer.exit_code == ExitCode.FAILED
    assert len(answer.lines) == 2
    assert b"without an in-sync replica" in answer.lines[0]
    assert b"voters" in answer.lines[1]
    assert answer.stderr == ""
    unknown = in_process("cluster", "can-stop", "9", "--json", bootstrap=broker.bootstrap)
    assert unknown.exit_code == ExitCode.FAILED
    assert unknown.json == {"broker": 9, "may_stop": False, "reasons": ["there is no broker 9: the cluster has 1"]}
