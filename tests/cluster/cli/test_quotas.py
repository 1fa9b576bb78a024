"""`cordwood quota`: limits are set, listed and removed, and hold on a real socket."""

from collections.abc import Iterator

import pytest
from broker_fixture import RunningBroker
from command import Outcome, in_process
from kio.schema.api_versions.v3.request import ApiVersionsRequest
from kio.schema.heartbeat.v4.request import HeartbeatRequest

from cordwood.client.blocking import connect
from cordwood.cluster.cli.exits import ExitCode

ANSWER_S = 30.0


@pytest.fixture
def quotas(broker: RunningBroker) -> Iterator[RunningBroker]:
    """Yield the file's broker, and remove all quotas afterwards."""
    yield broker
    for row in run(broker, "list", "--json").json:
        names = (("--user", row["user"]), ("--client-id", row["client_id"]), ("--ip", row["ip"]))
        given = [(key, name) for key, name in names if name is not None]
        options = [
            word for key, name in given for word in ((f"--default-{key[2:]}",) if name == "(default)" else (key, name))
        ]
        assert run(broker, "remove", *options).exit_code == ExitCode.OK


def run(broker: RunningBroker, *words: str) -> Outcome:
    return in_process("quota", *words, bootstrap=broker.bootstrap)


def test_limits_are_set_listed_and_removed(quotas: RunningBroker) -> None:
    shown = run(quotas, "set", "--user", "ann", "--default-client-id", "producer_byte_rate=10MiB").text
    assert shown == "user ann, default client-id: producer_byte_rate=10485760\n"
    run(quotas, "set", "--default-user", "request_percentage=12.5", "controller_mutation_rate=5")
    run(quotas, "set", "--ip", "10.0.0.7", "connection_creation_rate=20")
    listed = run(quotas, "list", "--json").json
    assert {(row["user"], row["client_id"], row["ip"]): row["limits"] for row in listed} == {
        ("ann", "(default)", None): {"producer_byte_rate": 10485760.0},
        ("(default)", None, None): {"controller_mutation_rate": 5.0, "request_percentage": 12.5},
        (None, None, "10.0.0.7"): {"connection_creation_rate": 20.0},
    }
    assert run(quotas, "remove", "--default-user", "request_percentage").text.endswith("request_percentage removed\n")
    assert "controller_mutation_rate=5" in run(quotas, "list").text


def test_mistakes_get_a_sentence(quotas: RunningBroker) -> None:
    for words, exit_code, sentence in (
        (["set", "producer_byte_rate=1"], ExitCode.USAGE, "say whose quota"),
        (["set", "--user", "a", "--ip", "10.0.0.1", "producer_byte_rate=1"], ExitCode.USAGE, "say whose quota"),
        (["set", "--user", "a", "--default-user", "producer_byte_rate=1"], ExitCode.USAGE, "give either"),
        (["set", "--user", "a", "producer_byte_rate"], ExitCode.USAGE, "write KEY=VALUE"),
        (["set", "--user", "a", "bytes=1"], ExitCode.FAILED, "Invalid configuration key bytes"),
        (["remove", "--user", "a"], ExitCode.FAILED, "there is no quota of user a"),
    ):
        outcome = run(quotas, *words)
        assert (outcome.exit_code, sentence in outcome.stderr) == (exit_code, True), outcome.stderr


def test_a_throttled_connection_is_muted_on_a_real_socket(quotas: RunningBroker) -> None:
    """The rate lets no connection through before the test ends, so that nothing depends on the machine's speed."""
    with connect(quotas.bootstrap, ANSWER_S, "first") as first:
        run(quotas, "set", "--client-id", "slow", "request_percentage=0.000001")
        with connect(quotas.bootstrap, ANSWER_S, "slow") as slow:
            asked = ApiVersionsRequest(client_software_name="test", client_software_version="1")
            reported = [slow.ask(asked).throttle_time.total_seconds() for _ in range(2)]
            assert reported == [0.0, 1.0]
            slow.send(asked)
            assert first.ask(asked).throttle_time.total_seconds() == 0
            assert slow.receive().throttle_time.total_seconds() == 1


def test_heartbeats_are_not_throttled(quotas: RunningBroker) -> None:
    run(quotas, "set", "--client-id", "slow", "request_percentage=0.000001")
    beat = HeartbeatRequest(group_id="none", generation_id=1, member_id="none", group_instance_id=None)
    with connect(quotas.bootstrap, ANSWER_S, "slow") as slow:
        assert [slow.ask(beat).throttle_time.total_seconds() for _ in range(5)] == [0.0] * 5
