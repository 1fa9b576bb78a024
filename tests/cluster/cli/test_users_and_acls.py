"""`cordwood user` and `cordwood acl`: users, rights and their removal; mistakes are a sentence."""

from pathlib import Path

import pytest
from broker_fixture import RunningBroker
from command import Outcome, cordwood, in_process

from cordwood.cluster.cli.exits import ExitCode

HEADINGS = ("principal", "permission", "operation", "resource", "name", "pattern", "host")
PRODUCER = ("--allow", "User:alice", "--producer", "--topic", "orders")


@pytest.fixture
def password(tmp_path: Path) -> Path:
    """Return a file with a password."""
    path = tmp_path / "password"
    path.write_text("her secret\n")
    return path


def acls(broker: RunningBroker, *words: str) -> list[tuple[str, ...]]:
    """Return the rows of `cordwood acl list`."""
    listed = run(broker, "acl", "list", "--json", *words)
    return [tuple(row[heading] for heading in HEADINGS) for row in listed.json]


def run(broker: RunningBroker, *words: str) -> Outcome:
    return in_process(*words, bootstrap=broker.bootstrap)


def test_a_user_is_added_changed_and_deleted(broker: RunningBroker, password: Path) -> None:
    add = ("user", "add", "alice", "--password-file", str(password))
    assert run(broker, *add).text == "alice: added\n"
    assert "already" in run(broker, *add).stderr
    assert run(broker, "user", "list", "--json").json == [
        {"name": "alice", "mechanisms": ["SCRAM-SHA-256", "SCRAM-SHA-512"]}
    ]
    changed = cordwood("user", "passwd", "alice", "--password-file", "-", bootstrap=broker.bootstrap, stdin=b"new\n")
    assert changed.text == "alice: password changed\n"
    assert run(broker, "user", "delete", "alice", "--yes").text == "alice: deleted\n"
    assert run(broker, "user", "list", "--json").json == []
    assert run(broker, "user", "delete", "alice", "--yes").exit_code == ExitCode.FAILED
    assert run(broker, "user", "delete", "alice", "--yes", "--if-exists").text == "alice: missing\n"
    assert run(broker, "user", "passwd", "alice", "--password-file", str(password)).exit_code == ExitCode.FAILED


@pytest.mark.parametrize(
    ("words", "stdin"), [((), b""), (("--password-file", "missing"), b""), (("--password-file", "-"), b"\n")]
)
def test_a_password_is_neither_empty_nor_on_the_command_line(
    broker: RunningBroker, words: tuple[str, ...], stdin: bytes
) -> None:
    refused = cordwood("user", "add", "bob", *words, bootstrap=broker.bootstrap, stdin=stdin)
    assert refused.exit_code == ExitCode.USAGE
    assert "--password-file" in refused.stderr
    assert run(broker, "user", "list", "--json").json == []


def test_a_producers_and_a_consumers_rights_come_together_and_go_one_by_one(broker: RunningBroker) -> None:
    assert run(broker, "acl", "add", *PRODUCER, "--transactional-id", "t").exit_code == ExitCode.OK
    consumer = ("--allow", "User:alice", "--consumer", "--topic", "orders", "--group", "billing")
    assert run(broker, "acl", "add", *consumer).exit_code == ExitCode.OK
    topic = ("TOPIC", "orders", "LITERAL", "*")
    transactions = ("TRANSACTIONAL_ID", "t", "LITERAL", "*")
    assert acls(broker) == [
        ("User:alice", "ALLOW", "CREATE", *topic),
        ("User:alice", "ALLOW", "DESCRIBE", *topic),
        ("User:alice", "ALLOW", "DESCRIBE", *transactions),
        ("User:alice", "ALLOW", "READ", "GROUP", "billing", "LITERAL", "*"),
        ("User:alice", "ALLOW", "READ", *topic),
        ("User:alice", "ALLOW", "WRITE", *topic),
        ("User:alice", "ALLOW", "WRITE", *transactions),
    ]
    one = ("--allow", "User:alice", "--topic", "orders", "--operation", "create")
    assert run(broker, "acl", "remove", *one, "--yes").text == "User:alice ALLOW CREATE TOPIC orders: removed\n"
    assert len(acls(broker, "--topic", "orders")) == 3
    assert run(broker, "acl", "remove", "--allow", "User:alice", "--yes").exit_code == ExitCode.OK
    assert acls(broker) == []
    assert run(broker, "acl", "remove", "--allow", "User:alice", "--yes").exit_code == ExitCode.FAILED


def test_what_counts_for_a_topic_is_listed_and_only_what_is_named_is_removed(broker: RunningBroker) -> None:
    for name, *more in (("ord", "--prefixed"), ("*",), ("orders",), ("other",)):
        words = ("--deny", "User:bob", "--operation", "read", "--topic", name, "--host", "10.0.0.0/8", *more)
        assert run(broker, "acl", "add", *words).exit_code == ExitCode.OK
    deny = ("User:bob", "DENY", "READ", "TOPIC")
    assert acls(broker, "--topic", "orders", "--principal", "User:bob") == [
        (*deny, "*", "LITERAL", "10.0.0.0/8"),
        (*deny, "ord", "PREFIXED", "10.0.0.0/8"),
        (*deny, "orders", "LITERAL", "10.0.0.0/8"),
    ]
    removed = run(broker, "acl", "remove", "--topic", "ord", "--prefixed", "--yes")
    assert removed.text == "User:bob DENY READ TOPIC ord* from 10.0.0.0/8: removed\n"
    assert [row[4] for row in acls(broker)] == ["*", "orders", "other"]
    assert run(broker, "acl", "remove", "--deny", "User:bob", "--yes").exit_code == ExitCode.OK


def test_every_type_of_resource_has_an_option(broker: RunningBroker) -> None:
    words = ("--cluster", "--delegation-token", "t", "--user-principal", "User:bob", "--group", "g")
    assert run(broker, "acl", "add", "--allow", "User:*", "--operation", "all", *words).exit_code == ExitCode.OK
    assert {row[3:5] for row in acls(broker)} == {
        ("CLUSTER", "kafka-cluster"),
        ("DELEGATION_TOKEN", "t"),
        ("GROUP", "g"),
        ("USER", "User:bob"),
    }
    assert run(broker, "acl", "remove", "--allow", "User:*", "--yes").exit_code == ExitCode.OK


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("add", "--producer", "--topic", "t"), "--allow"),
        (("add", "--allow", "alice", "--producer", "--topic", "t"), "User:alice"),
        (("add", "--allow", "User:alice", "--operation", "read"), "--topic"),
        (("add", "--allow", "User:alice", "--topic", "t"), "--operation"),
        (("add", "--allow", "User:alice", "--operation", "reed", "--topic", "t"), "describe-configs"),
        (("add", "--allow", "User:alice", "--consumer", "--topic", "t"), "--group"),
        (("add", "--allow", "User:alice", "--producer", "--group", "g"), "--topic"),
        (("add", *PRODUCER, "--cluster"), "--cluster"),
        (("add", *PRODUCER, "--operation", "read"), "either"),
        (("add", "--deny", "User:alice", "--producer", "--topic", "t"), "--allow only"),
        (("remove",), "--topic"),
        (("list", "--principal", "alice"), "User:alice"),
    ],
)
def test_what_makes_no_sense_is_refused_before_a_broker_is_asked(words: tuple[str, ...], said: str) -> None:
    refused = in_process("acl", *words, bootstrap="127.0.0.1:1")
    assert refused.exit_code == ExitCode.USAGE
    assert said in refused.stderr
