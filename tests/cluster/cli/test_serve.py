"""`cordwood serve` as a process: start, output and shutdown."""

import signal
from pathlib import Path

import pytest
from broker_fixture import RunningBroker, free_port
from command import cordwood, in_process, start_cordwood

from cordwood.cluster.cli.exits import ExitCode
from cordwood.cluster.cli.serve import first_users_of


def test_sigterm_is_a_clean_end_and_everything_is_there_afterwards(broker: RunningBroker) -> None:
    created = cordwood("topic", "create", "t", bootstrap=broker.bootstrap)
    assert created.exit_code == ExitCode.OK, created.text
    produced = cordwood("produce", "t", stdin=b"kept\n", bootstrap=broker.bootstrap)
    assert produced.exit_code == ExitCode.OK, produced.text
    assert broker.terminate() == ExitCode.OK
    broker.restart()
    assert cordwood("consume", "t", bootstrap=broker.bootstrap).lines == [b"kept"]


def test_it_logs_the_advertised_address_in_one_line(tmp_path: Path) -> None:
    reported = f"PLAINTEXT://localhost:{free_port()}"
    broker = RunningBroker(tmp_path / "data", advertised_listeners=reported).start()
    try:
        assert f"127.0.0.1:{broker.port}" in broker.output
        assert reported.removeprefix("PLAINTEXT://") in broker.output
    finally:
        broker.stop()


def test_an_address_or_a_directory_that_is_taken_is_named(broker: RunningBroker, tmp_path: Path) -> None:
    elsewhere = f"listeners=PLAINTEXT://127.0.0.1:{free_port()}"
    for taken in (
        [f"log.dirs={tmp_path / 'other'}", f"listeners=PLAINTEXT://{broker.bootstrap}"],
        [f"log.dirs={broker.data}", elsewhere],
    ):
        outcome = cordwood("serve", "--set", taken[0], "--set", taken[1])
        assert outcome.exit_code == ExitCode.FAILED
        assert outcome.stderr.startswith("cordwood: the broker cannot start")


def test_file_environment_and_options_are_read_in_this_order(tmp_path: Path) -> None:
    port = free_port()
    config = tmp_path / "broker.toml"
    config.write_text(
        f'num.partitions = 2\nlisteners = "PLAINTEXT://127.0.0.1:{port}"\nlog.dirs = "{tmp_path}/wrong"\n'
    )
    serving = start_cordwood(
        "serve", "--config", str(config), "--set", f"log.dirs={tmp_path}/data", CORDWOOD_NUM_PARTITIONS="3"
    )
    assert serving.stderr is not None
    try:
        assert any(b"broker.ready" in line for line in serving.stderr), "it ended before it was ready"
        cordwood("topic", "create", "t", bootstrap=f"127.0.0.1:{port}")
        [topic] = cordwood("topic", "list", "--json", bootstrap=f"127.0.0.1:{port}").json
    finally:
        serving.send_signal(signal.SIGINT)
        serving.communicate(timeout=30)
    assert serving.returncode == ExitCode.OK
    assert topic["partitions"] == 3
    assert (tmp_path / "data").is_dir()
    assert not (tmp_path / "wrong").exists()


@pytest.mark.parametrize("word", ["TopSecret", "SCRAM-SHA-256=[name=admin,color=TopSecret]", "@TopSecret"])
def test_a_mistake_in_the_first_users_ends_the_start(word: str) -> None:
    outcome = in_process("serve", "--add-scram", word)
    assert outcome.exit_code == 2
    assert ("TopSecret" in outcome.stderr) == word.startswith("@"), "the name of a file is no secret"


def test_a_file_has_a_user_in_each_line(tmp_path: Path) -> None:
    file = tmp_path / "users"
    file.write_text("admin=secret\n\nSCRAM-SHA-512=[name=alice,password=x y,iterations=8192]\n")
    found = first_users_of([f"@{file}", "bob=geheim"])
    assert [(user.user, int(user.mechanism), user.iterations) for user in found] == [
        ("admin", 1, 4096),
        ("admin", 2, 4096),
        ("alice", 2, 8192),
        ("bob", 1, 4096),
        ("bob", 2, 4096),
    ]
