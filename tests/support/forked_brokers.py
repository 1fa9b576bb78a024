"""Brokers and commands forked from a process that has made their imports: nine tenths of a start's processor time.

From the first line of `cordwood` on, a forked process is like any other. The process that forked it reports its end,
and kills it if the tests' process ends first.
"""

import atexit
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO, Any

MESSAGE_BYTES_MAX = 1 << 20
IMPORTED = (
    *("cordwood.cluster.cli.app", "cordwood.cluster.broker.process", "cordwood.cluster.http.server"),
    # Those of commands; typer imports pydantic on use.
    *("cordwood.cluster.cli.local.processes", "pydantic.type_adapter"),
)


def of_the_interpreter(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables that count only when an interpreter starts."""
    return {name: value for name, value in environ.items() if name.startswith(("PYTHON", "LD_", "MALLOC_"))}


AT_START = of_the_interpreter(os.environ)


def may_fork(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether a process forked with `environ` is what a new one would be: no test changes how it starts."""
    return of_the_interpreter(environ) == AT_START


class ForkedProcess:
    """A forked process: what `RunningBroker` needs of subprocess.Popen."""

    def __init__(self, server: "ForkServer", pid: int) -> None:
        self._server = server
        self.pid = pid
        self.exit_code: int | None = None
        """The exit code, once its report was read."""

    def poll(self) -> int | None:
        """Return the exit code, a negative signal number, or None while the process runs."""
        self._server.await_end(self, 0.0)
        return self.exit_code

    def wait(self, timeout: float) -> int:
        """Return the exit code. Raises TimeoutExpired."""
        self._server.await_end(self, timeout)
        if self.exit_code is None:
            raise subprocess.TimeoutExpired("cordwood", timeout)
        return self.exit_code

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process is known to have ended."""
        if self.poll() is None:
            os.kill(self.pid, number)


class ForkServer:
    """The process that forks, from the side of the tests."""

    def __init__(self, channel: socket.socket, process: "subprocess.Popen[bytes] | None") -> None:
        """`process` is kept as long as it may run; None for a test that is the other side."""
        self._channel, self._process = channel, process
        self._running: dict[int, ForkedProcess] = {}
        """By pid, which the system gives to another process once this one has ended."""
        self._lock = threading.Lock()

    @property
    def pid(self) -> int:
        assert self._process is not None, "there is a process"
        return self._process.pid

    def fork(
        self, words: Sequence[str], streams: Sequence[IO[bytes]], environ: Mapping[str, str], directory: Path
    ) -> ForkedProcess:
        """Run `cordwood` with these files as standard input, output and error."""
        request = json.dumps({"words": list(words), "environ": dict(environ), "directory": str(directory)}).encode()
        with self._lock:
            socket.send_fds(self._channel, [request], [stream.fileno() for stream in streams])
            while (started := self._read_report()) is None:
                pass
            return started

    def await_end(self, process: ForkedProcess, timeout_s: float) -> None:
        """Return once the exit code of a process is known, or after `timeout_s`."""
        deadline_s = time.monotonic() + timeout_s
        with self._lock:
            while process.exit_code is None:
                if not select.select([self._channel], [], [], max(0.0, deadline_s - time.monotonic()))[0]:
                    return
                self._read_report()

    def _read_report(self) -> ForkedProcess | None:
        """Take the end of a process, or return the process that has started."""
        report = json.loads(self._channel.recv(MESSAGE_BYTES_MAX))
        pid = report["pid"]
        if "code" in report:
            self._running.pop(pid).exit_code = report["code"]
            return None
        started = self._running[pid] = ForkedProcess(self, pid)
        return started


@cache
def fork_server() -> ForkServer:
    """Return this process's server, which the first call starts."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        command = [sys.executable, "-P", __file__, str(theirs.fileno())]
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=[theirs.fileno()]
        )
    return ForkServer(ours, process)


def serve(channel: socket.socket) -> None:
    """Fork on request and report ends, until the tests' process ends. Returns in each forked process."""
    woken, wakes = socket.socketpair()
    for each in (woken, wakes):
        each.setblocking(False)
    signal.set_wakeup_fd(wakes.fileno())
    signal.signal(signal.SIGCHLD, lambda *_: None)
    running = set[int]()
    while True:
        ready = select.select([channel, woken], [], [])[0]
        if woken in ready:
            woken.recv(MESSAGE_BYTES_MAX)
        for pid, code in list(ends(running)):
            running.remove(pid)
            report(channel, pid=pid, code=code)
        if channel not in ready:
            continue
        request, streams, _, _ = socket.recv_fds(channel, MESSAGE_BYTES_MAX, 3)
        if not request:
            break
        if (pid := os.fork()) == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for each in (channel, woken, wakes):
                each.close()
            become(json.loads(request), streams)
            return
        running.add(pid)
        close(streams)
        report(channel, pid=pid)
    for pid in running:
        os.kill(pid, signal.SIGKILL)
    sys.exit()


def close(streams: Iterable[int]) -> None:
    """Close the files of a forked process in this one."""
    for stream in streams:
        os.close(stream)


def ends(running: set[int]) -> Iterator[tuple[int, int]]:
    """Yield the forked processes that have ended, with their exit codes."""
    for pid in running:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            yield pid, os.waitstatus_to_exitcode(status)


def report(channel: socket.socket, **facts: int) -> None:
    """Report a process to the tests' process, if that still runs."""
    with suppress(BrokenPipeError):
        channel.send(json.dumps(facts).encode())


def become(request: dict[str, Any], streams: Sequence[int]) -> None:
    """Take on the standard streams, environment, directory and arguments of the requested process."""
    for standard, stream in enumerate(streams):
        os.dup2(stream, standard)
        os.close(stream)
    os.environ.clear()
    os.environ.update(request["environ"])
    os.chdir(request["directory"])
    sys.argv = ["cordwood", *request["words"]]


def end(ended: SystemExit) -> None:
    """End this process as an interpreter does, but for the objects: to free each is half of a command's time."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for standard in (sys.stdout, sys.stderr):
        standard.flush()
    if isinstance(ended.code, int):
        os._exit(ended.code)
    raise ended


def import_all() -> None:
    """Import what a broker imports after its start, and most commands, and keep it out of garbage collections."""
    gc.disable()
    importlib.import_module("cordwood.cluster.cli.unused_libraries").leave_out()
    for name in IMPORTED:
        importlib.import_module(name)
    for one in importlib.import_module("cordwood.cluster.kafka.imports").imports():
        one()
    gc.collect()
    gc.freeze()
    gc.enable()
    assert threading.active_count() == 1, "a thread would not be there in a forked process"


if __name__ == "__main__":
    import_all()
    serve(socket.socket(fileno=int(sys.argv[1])))
    try:
        importlib.import_module("cordwood.cluster.cli").main()
    except SystemExit as ended:
        end(ended)
