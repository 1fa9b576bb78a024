"""Forked processes of `cordwood`: output, exit codes and signals as of new processes, and an end with the tests."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from broker_fixture import RunningBroker, wait_until
from command import environment, in_new_process
from command import forked as forked_command
from forked_brokers import ForkedProcess, ForkServer, fork_server, may_fork, report

ENDED_S = 60.0
SUPPORT = Path(__file__).with_name("support")
STARTS_AND_DIES = """
import os, pathlib, sys
from broker_fixture import RunningBroker
print(RunningBroker(pathlib.Path(sys.argv[1]) / "data").start().pid, flush=True)
os._exit(1)
"""


def forked(place: Path, *words: str, **environ: str) -> ForkedProcess:
    with (place / "log").open("ab") as log, Path(os.devnull).open("rb") as nothing:
        return fork_server().fork(words, (nothing, log, log), {**os.environ, **environ}, place)


def test_it_ends_with_its_exit_code_and_its_output(tmp_path: Path) -> None:
    assert forked(tmp_path, "--version").wait(ENDED_S) == 0
    assert forked(tmp_path, "serve", CORDWOOD_NODE_ID="one").wait(ENDED_S) == 2
    version, mistake = (tmp_path / "log").read_text().splitlines()[:2]
    assert version.startswith("cordwood ")
    assert "node.id" in mistake


@pytest.mark.parametrize(
    "words", [["--version"], ["topic", "list", "--bootstrap-server", "127.0.0.1:1"], ["log"]], ids=" ".join
)
def test_a_command_ends_as_in_a_new_process(words: list[str]) -> None:
    environ = environment(None, {})
    assert forked_command(words, b"", environ) == in_new_process(words, b"", environ)


def test_a_signal_ends_it(tmp_path: Path) -> None:
    process = forked(tmp_path, "serve", "--set", "listeners=PLAINTEXT://127.0.0.1:0")
    wait_until((tmp_path / "cordwood-data").exists, ENDED_S, "data in its working directory")
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.1)
    assert process.poll() is None
    process.send_signal(signal.SIGKILL)
    assert process.wait(ENDED_S) == -signal.SIGKILL


def test_a_pid_that_is_given_again_is_that_of_a_new_process(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs, Path(os.devnull).open("r+b") as nothing:
        server = ForkServer(ours, None)
        for facts in ({"pid": 7}, {"pid": 7, "code": 1}, {"pid": 7}):
            report(theirs, **facts)
        first, second = (server.fork([], [nothing], {}, tmp_path) for _ in range(2))
        assert (first.poll(), second.poll()) == (1, None)
        report(theirs, pid=7, code=2)
        assert (first.wait(ENDED_S), second.wait(ENDED_S)) == (1, 2)


def test_an_interpreter_that_starts_in_another_way_is_not_forked(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert may_fork()
    assert parent(broker.pid) == fork_server().pid
    monkeypatch.setenv("PYTHONUTF8", "1")
    assert parent(broker.restart().pid) == os.getpid()


def test_it_ends_with_the_process_of_the_tests(tmp_path: Path) -> None:
    command = [sys.executable, "-P", "-c", STARTS_AND_DIES, str(tmp_path)]
    started = subprocess.run(
        command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(SUPPORT)}, check=False
    )
    wait_until(lambda: not Path(f"/proc/{int(started.stdout)}").exists(), ENDED_S, "the end of the broker")


def parent(pid: int) -> int:
    """Return the parent of a process."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
