"""A real broker in a process of its own, for tests that kill it."""

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import cycle, islice
from pathlib import Path

from forked_brokers import ForkedProcess, fork_server, may_fork

START_S = 60.0
STOP_S = 40.0
POLL_S, POLL_S_MAX = 0.02, 0.5
READY = "event=broker.ready"
PORTS, WORKERS_MAX = range(10_000, 20_000), 10
"""Ports below those of outgoing connections and of `local_cluster`: a tenth for each worker."""


def _ports_of_worker() -> Iterator[int]:
    """Yield the ports of this worker in a random order, again and again."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", f"gw{os.getpid()}").removeprefix("gw"))
    count, place = len(PORTS) // WORKERS_MAX, worker % WORKERS_MAX
    ports = list(PORTS[place * count : (place + 1) * count])
    random.SystemRandom().shuffle(ports)
    return cycle(ports)


_ports = _ports_of_worker()


class RunningBroker:
    """`cordwood serve` on a free port of 127.0.0.1.

    The port and the data directory stay the same over `restart`. The broker's output goes to `log_path`.
    """

    def __init__(self, data: Path, **settings: str) -> None:
        """Take `settings` as Kafka's keys with `_` for `.`: RunningBroker(path, num_partitions="3")."""
        self.data = data
        self.port = free_port()
        self.settings = {key.replace("_", "."): value for key, value in settings.items()}
        self.log_path = data.with_name(data.name + ".broker.log")
        self.ready_mark = READY
        """The text in the output that shows that the broker is ready; for brokers with another log format."""
        self.options: list[str] = []
        """Further options of `cordwood serve`."""
        self.descriptors_max: int | None = None
        """The process's limit of file descriptors; None inherits this process's."""
        self._process: subprocess.Popen[bytes] | ForkedProcess | None = None

    @property
    def bootstrap(self) -> str:
        """The address host:port for clients."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the broker is not running"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether the process was started and has not been ended."""
        return self._process is not None

    @property
    def output(self) -> str:
        """The broker's whole output so far, over restarts."""
        return self.log_path.read_text(errors="replace")

    def start(self) -> "RunningBroker":
        """Start the broker and wait until it is ready. Raises AssertionError with its output if it ends before."""
        assert self._process is None, "the broker is running already"
        self.data.parent.mkdir(parents=True, exist_ok=True)
        options = {
            "listeners": f"PLAINTEXT://{self.bootstrap}",
            "log.dirs": str(self.data),
            **self.settings,
        }
        words = ["serve", *(word for key, value in options.items() for word in ("--set", f"{key}={value}"))]
        words += self.options
        environ = {key: value for key, value in os.environ.items() if not key.startswith("CORDWOOD_")}
        self.log_path.touch()
        self._readies_before = self.output.count(self.ready_mark)
        if self.descriptors_max is None and may_fork():
            with Path(os.devnull).open("rb") as nothing, self.log_path.open("ab") as log:
                self._process = fork_server().fork(words, (nothing, log, log), environ, self.data.parent)
        else:
            self._process = self._new_process(words, environ)
        wait_until(self._takes_connections, START_S, f"a broker at {self.bootstrap}")
        return self

    def _new_process(self, words: list[str], environ: dict[str, str]) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "cordwood.cluster.cli", *words]
        if self.descriptors_max is not None:
            command = ["sh", "-c", f'ulimit -n {self.descriptors_max} && exec "$@"', "sh", *command]
        with self.log_path.open("ab") as log:
            # Not in the repository's root, where `-m` would put our folders on the path under their flat names.
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environ, cwd=self.data.parent
            )

    def kill(self) -> None:
        """Send SIGKILL, as a crash would end the process."""
        self._end(signal.SIGKILL)

    def terminate(self) -> int:
        """Send SIGTERM and wait for a clean shutdown. Return the exit code."""
        return self._end(signal.SIGTERM)

    def restart(self) -> "RunningBroker":
        """Start again on the same data and port, after a clean shutdown if the broker still runs."""
        if self._process is not None:
            self.terminate()
        return self.start()

    def stop(self) -> None:
        """End the broker in any state; for the end of a test."""
        if self._process is None:
            return
        try:
            self.terminate()
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def pause(self) -> None:
        """Send SIGSTOP: the process halts and its connections stay open."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Send SIGCONT."""
        os.kill(self.pid, signal.SIGCONT)

    def _end(self, how: signal.Signals) -> int:
        process = self._process
        assert process is not None, "the broker is not running"
        process.send_signal(how)
        exit_code = process.wait(STOP_S)
        self._process = None
        return exit_code

    def _takes_connections(self) -> bool:
        assert self._process is not None
        exit_code = self._process.poll()
        if exit_code is not None:
            self._process = None
            raise AssertionError(f"the broker ended with {exit_code} before it took connections:\n{self.output}")
        return self.output.count(self.ready_mark) > self._readies_before


def free_port() -> int:
    """Return a free port outside the system's range for outgoing connections, each after all others of this worker.

    A port in that range could become the local end of an outgoing connection. A client that retries an absent broker
    may even be connected with itself. A port that was given before may be that of a broker that is stopped.
    """
    for port in islice(_ports, len(PORTS) // WORKERS_MAX):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("there is no free port")


def wait_until(condition: Callable[[], bool], seconds: float, what: str) -> None:
    """Return once the condition holds. Raises AssertionError with `what` after `seconds`.

    The pause between two checks is as long as a check took: an expensive one leaves the processor to what it waits for.
    """
    asked_s = time.monotonic()
    deadline = asked_s + seconds
    while not condition():
        now_s = time.monotonic()
        assert now_s < deadline, f"waited {seconds:.0f} s in vain for {what}"
        time.sleep(min(max(POLL_S, now_s - asked_s), POLL_S_MAX))
        asked_s = time.monotonic()
