"""The command line's reaction to mistakes: a one-sentence message and an exit code."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from broker_fixture import free_port
from command import cordwood, in_process
from kafka.errors import NodeNotReadyError
from typer.core import TyperGroup
from typer.testing import CliRunner

from cordwood import __version__
from cordwood.cluster.cli.admin import failure_of
from cordwood.cluster.cli.app import app
from cordwood.cluster.cli.client import Target
from cordwood.cluster.cli.exits import ExitCode, Failure
from cordwood.cluster.cli.options import INT64_MAX
from cordwood.cluster.cli.plan_execution import read_journal

COMMANDS = [
    ["topic", "list"],
    ["topic", "create", "t"],
    ["topic", "describe", "t"],
    ["topic", "alter", "t", "--partitions", "2"],
    ["topic", "delete", "t"],
    ["produce", "t"],
    ["consume", "t"],
    ["group", "list"],
    ["group", "describe", "g"],
    ["group", "reset", "g", "--to", "earliest"],
    ["status"],
    ["cluster", "can-stop", "1"],
    ["partition", "elect", "t"],
    ["partition", "move", "t", "0", "--to", "1,2"],
    ["partition", "list-moves"],
    ["transaction", "list"],
    ["transaction", "describe", "id"],
    ["transaction", "describe-producers", "--topic", "t", "--partition", "0"],
    ["transaction", "find-hanging"],
    ["transaction", "abort", "--topic", "t", "--partition", "0", "--start-offset", "0"],
]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_without_a_broker_it_says_how_to_get_one(words: list[str]) -> None:
    outcome = in_process(*words, bootstrap=f"127.0.0.1:{free_port()}")
    assert outcome.exit_code == ExitCode.UNREACHABLE
    assert "cordwood serve" in outcome.stderr
    assert outcome.stdout == b""


def test_a_broker_of_up_that_does_not_run_is_not_to_be_started_with_serve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`cordwood serve` would start a cluster of its own at the address."""
    monkeypatch.chdir(tmp_path)
    down, other, elsewhere = (f"127.0.0.1:{free_port()}" for _ in range(3))
    cluster = tmp_path / "cordwood-cluster" / "cluster.json"
    cluster.parent.mkdir()
    cluster.write_text(json.dumps({"brokers": [{"kafka": down}, {"kafka": other}]}))
    one = in_process("topic", "list", bootstrap=down)
    assert one.exit_code == ExitCode.UNREACHABLE
    assert one.stderr.endswith(
        f" Start it again with `cordwood up`, or name the others with --bootstrap-server {other}.\n"
    )
    assert in_process("topic", "list", bootstrap=f"{down},{other}").stderr.endswith("again with `cordwood up`.\n")
    assert "cordwood serve" in in_process("topic", "list", bootstrap=elsewhere).stderr
    cluster.write_text("{")
    assert "cordwood serve" in in_process("topic", "list", bootstrap=down).stderr


def test_a_host_that_has_no_address_is_reported_in_words() -> None:
    outcome = in_process("topic", "list", bootstrap="no-such-host.invalid:9092")
    assert outcome.exit_code == ExitCode.UNREACHABLE
    assert re.search(r"no broker at no-such-host\.invalid:9092 \([a-z ]+\)\.", outcome.stderr)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["consume", "t", "--from", "yesterday"], "earliest, latest"),
        (["consume", "t", "--group", "g", "--partition", "0"], "leave out --partition"),
        (["consume", "t", "--max", "0"], "--max"),
        (["produce", "t", "--acks", "2"], "--acks"),
        (["produce", "t", "--compression", "rar"], "--compression"),
        (["produce", "t", "--key-separator", ""], "--key-separator"),
        (["topic", "create"], "TOPIC"),
        (["topic", "create", "t", "--config", "retention.ms"], "key=value"),
        (["topic", "alter", "t"], "--config"),
        (["topic", "list", "-b", "nowhere:port"], "host:port"),
        (["group", "reset", "g"], "--to"),
        (["group", "reset", "g", "--to", "back"], "earliest, latest"),
        (["log", "verify", "there/is/none"], "there/is/none"),
        (["log", "dump", "there/is/none"], "there/is/none"),
        (["serve", "--config", "there/is/none"], "there/is/none"),
        (["serve", "--set", "log.dir=x"], "log.dirs"),
        (["serve", "--set", "num.partitions"], "key=value"),
        (["up", "--brokers", "0"], "--brokers"),
        (["up", "--port", "70000"], "--port"),
        (["up", "--voters", "2"], "1, 3 or 5"),
        (["up", "--set", "node.id=7"], "node.id"),
        (["up", "--set", "num.partition=7"], "num.partitions"),
        (["down", "--data-dir", "there/is/none"], "there/is/none"),
        (["status", "-b", "nowhere:port"], "host:port"),
        (["status", "--watch", "-b", "nowhere:port"], "host:port"),
        (["cluster", "can-stop"], "ID"),
        (["cluster", "can-stop", "first"], "integer"),
        (["partition", "elect", "t", "first"], "PARTITION"),
        (["partition", "elect", "t", "--unclean"], "--yes"),
        (["partition", "move", "t", "0"], "--to"),
        (["partition", "move", "t", "0", "--to", "1", "--cancel"], "--cancel"),
        (["partition", "move", "t", "0", "--to", "1,one"], "1,2,3"),
        (["partition", "move", "t", "0", "--to", "1,1"], "different"),
        (["consume", "t", "--isolation", "serializable"], "read_committed"),
        (["transaction", "list", "--state", "open"], "--state"),
        (["transaction", "describe"], "TRANSACTIONAL_ID"),
        (["transaction", "describe-producers", "--topic", "t"], "--partition"),
        (["transaction", "find-hanging", "--partition", "0"], "--topic"),
        (["transaction", "abort", "--topic", "t", "--partition", "0"], "--start-offset"),
        (["serf"], "serf"),
        (["topic", "crate", "t"], "create"),
        (["topic", "create", "t", "--partition", "3"], "--partitions"),
        (["topic", "create", "t", "--partitions", "100001"], "100000"),
        (["topic", "create", "t", "--replication-factor", "10001"], "10000"),
        (["topic", "list", "-b", "http://127.0.0.1:9092"], "host:port"),
        (["topic", "list", "-b", f"127.0.0.1:{'9' * 5000}"], "host:port"),
        (["partition", "move", "t", "0", "--to", "1,99999999999"], "1,2,3"),
        (["partition", "move", "t", "0", "--to", f"1,{'9' * 5000}"], "1,2,3"),
        (["broker", "remove", "99999999999"], "ID"),
        (["token", "create", "--max-hours", "99999999999"], "--max-hours"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_usage_is_exit_2_and_says_what_would_be_right(words: list[str], said: str) -> None:
    outcome = CliRunner().invoke(app, words)
    assert outcome.exit_code == ExitCode.USAGE
    assert said in outcome.stderr
    assert "Traceback" not in outcome.output


def numbers_of(group: TyperGroup, *path: str) -> Iterator[tuple[str, Any]]:
    """Yield each whole number that the commands of a group take, as an option or an argument, with its command."""
    for name, command in group.commands.items():
        if isinstance(command, TyperGroup):
            yield from numbers_of(command, *path, name)
        else:
            where = " ".join([*path, name])
            yield from ((where, each) for each in command.params if "int" in str(each.type_descriptor.annotation))


def test_every_number_has_an_upper_bound() -> None:
    numbers = list(numbers_of(typer.main.get_command(app)))
    assert len(numbers) > 40
    assert [(where, number.opts) for where, number in numbers if not 0 < (number.max or 0) <= INT64_MAX] == []


def test_a_file_that_cannot_be_read_is_named_without_the_number_of_the_error(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("no moves")
    for words in (["up", "--data-dir", str(file)], ["serve", "--add-scram", f"@{tmp_path}"]):
        outcome = CliRunner().invoke(app, words)
        assert outcome.exit_code == ExitCode.USAGE
        assert re.search(r"cannot read .*: (Is|Not) a directory\.", outcome.stderr)
        assert "Errno" not in outcome.stderr


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("bootstrap.server", "bootstrap.servers"),
        ("security_protocol", "security.protocol"),
        ("sals.username", "sasl.username"),
        ("sasl.usernam", "sasl.username"),
    ],
)
def test_a_misspelt_key_of_a_configuration_is_named(tmp_path: Path, key: str, meant: str) -> None:
    config = tmp_path / "client.properties"
    config.write_text(f"security.protocol=SASL_PLAINTEXT\nclient.id=x\nacks=all\n{key}=SSL\n")
    outcome = cordwood("topic", "list", "--command-config", str(config))
    assert outcome.exit_code == ExitCode.USAGE
    assert f"there is no {key}: did you mean {meant}?" in outcome.stderr


@pytest.mark.parametrize("below", ["", "/below"])
def test_a_file_in_place_of_a_log_directory_is_named(tmp_path: Path, below: str) -> None:
    file = tmp_path / "file"
    file.touch()
    outcome = cordwood("serve", "--set", f"log.dirs={file}{below}")
    assert outcome.exit_code == ExitCode.FAILED
    assert f"log.dirs: {file}{below} is not a directory" in outcome.stderr


def test_an_archive_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    outcome = CliRunner().invoke(app, ["archive", "status", "--url", (tmp_path / "none").as_uri()])
    assert outcome.exit_code == ExitCode.FAILED
    assert "has no archive" in outcome.stderr
    assert not (tmp_path / "none").exists()


def test_what_is_no_file_of_moves_is_not_taken_back(tmp_path: Path) -> None:
    file = tmp_path / "moves.json"
    file.write_text("none")
    with pytest.raises(Failure) as refused:
        read_journal(file)
    assert refused.value.exit_code == ExitCode.USAGE
    assert "cordwood balance --execute" in refused.value.sentence


def test_all_mistakes_of_a_configuration_are_named_at_once(tmp_path: Path) -> None:
    config = tmp_path / "broker.toml"
    config.write_text('"num.partitions" = 0\nlisteners = "nonsense"\n')
    outcome = CliRunner().invoke(app, ["serve", "--config", str(config)])
    assert outcome.exit_code == ExitCode.USAGE
    assert "num.partitions" in outcome.stderr
    assert "listeners" in outcome.stderr


def test_the_version_is_printed() -> None:
    assert CliRunner().invoke(app, ["--version"]).output == f"cordwood {__version__}\n"


def test_completion_is_offered_for_shells() -> None:
    outcome = cordwood(_CORDWOOD_COMPLETE="complete_bash", COMP_WORDS="cordwood topic ", COMP_CWORD="2")
    assert set(outcome.text.split()) == {"create", "list", "describe", "alter", "delete"}


def test_help_and_serve_do_not_wait_for_heavy_imports() -> None:
    import subprocess
    import sys

    program = (
        "import sys; from cordwood.cluster.cli.app import app; import cordwood.cluster.config.sources\n"
        "print([name for name in ('rich', 'confluent_kafka', 'kafka', 'pandas', 'asyncio') if name in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert ran.stdout.strip() == "[]"


def test_a_broker_that_does_not_answer_is_named() -> None:
    failure = failure_of(NodeNotReadyError(3), Target("localhost:9092"))
    assert failure.exit_code is ExitCode.UNREACHABLE
    assert failure.sentence.startswith("localhost:9092 accepts connections, but broker 3 did not answer. Try again")
