"""`cordwood serve --processes N`: the brokers of a host with several cores, one process each."""

import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cordwood.cluster.cli.exits import ExitCode, Failure
from cordwood.cluster.cli.output import note

if TYPE_CHECKING:
    from types import FrameType

    from cordwood.cluster.config.settings import Settings

AGAIN_S, AGAIN_S_MAX = 1.0, 30.0
"""The pause before a broker that has ended is started again: doubled each time that it ends soon after its start."""
STEADY_S = 60.0
POLL_S = 0.2
IDENTITY = "identity"


def own_overrides(settings: "Settings", processes: int) -> list[list[str]]:
    """Return the `--set` texts of each broker: consecutive node.ids and ports, directories and the host's rack.

    A port of 0 stays: the system chooses it. Raises Failure (exit code 2).
    """
    for path in settings.log_dirs:
        if Path(path, IDENTITY).exists():
            raise Failure(
                f"{path} has the data of a single broker. With --processes each broker has a directory in it: stop the"
                f" broker and move everything in {path} to {path}/broker-{settings.node_id}.",
                ExitCode.USAGE,
            )
    rack = settings.broker_rack or socket.gethostname()
    return [_overrides_of(settings, number, rack) for number in range(processes)]


def _overrides_of(settings: "Settings", number: int, rack: str) -> list[str]:
    node_id = settings.node_id + number
    texts = {
        "node.id": str(node_id),
        "broker.rack": rack,
        "log.dirs": ",".join(f"{path}/broker-{node_id}" for path in settings.log_dirs),
        "listeners": ",".join(_shifted(address, number) for address in settings.listeners),
        "advertised.listeners": ",".join(_shifted(address, number) for address in settings.advertised_listeners),
        "http.listen": _shifted(settings.http_listen, number),
    }
    return [f"{key}={text}" for key, text in texts.items() if text]


def _shifted(address: str, number: int) -> str:
    """Return the address with a port that is higher by `number`. Other texts stay: the broker names the mistake."""
    host, colon, port = address.rpartition(":")
    return f"{host}{colon}{int(port) + number}" if port.isdecimal() and int(port) else address


@dataclass(slots=True)
class _Broker:
    node_id: int
    command: list[str]
    process: "subprocess.Popen[bytes] | None" = None
    started_s: float = 0.0
    again_s: float = 0.0
    pause_s: float = AGAIN_S


class BrokerHost:
    """The processes of a host's brokers, from `run` to a signal. A broker that ends by itself is started again."""

    def __init__(self, arguments: list[str], overrides: list[list[str]], first_id: int) -> None:
        """`arguments` are those of `cordwood serve` that all brokers share."""
        base = [sys.executable, "-m", "cordwood.cluster.cli", "serve", *arguments]
        self._brokers = [
            _Broker(first_id + number, [*base, *(word for text in own for word in ("--set", text))])
            for number, own in enumerate(overrides)
        ]
        self._is_stopping = False

    def run(self) -> int:
        """Run the brokers until SIGTERM or SIGINT, which is passed on to them. Return the exit code."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._pass_on)
        for broker in self._brokers:
            self._start(broker)
        while not self._is_stopping:
            for broker in self._brokers:
                self._look_at(broker)
            if not self._is_stopping:
                time.sleep(POLL_S)
        codes = [broker.process.wait() for broker in self._brokers if broker.process is not None]
        return int(any(codes))

    def _start(self, broker: _Broker) -> None:
        broker.started_s = time.monotonic()
        # A session of its own: Ctrl-C reaches this process only, which passes it on.
        broker.process = subprocess.Popen(broker.command, start_new_session=True)

    def _look_at(self, broker: _Broker) -> None:
        now_s = time.monotonic()
        if broker.process is None:
            if now_s >= broker.again_s:
                self._start(broker)
            return
        code = broker.process.poll()
        if code is None:
            return
        broker.process = None
        if code == ExitCode.USAGE:
            # Its configuration is wrong, and stays so.
            self._is_stopping = True
            self._signal(signal.SIGTERM)
            return
        broker.pause_s = AGAIN_S if now_s - broker.started_s > STEADY_S else min(2 * broker.pause_s, AGAIN_S_MAX)
        broker.again_s = now_s + broker.pause_s
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        note(f"broker {broker.node_id} {how}; it is started again in {broker.pause_s:.0f} s")

    def _pass_on(self, number: int, _frame: "FrameType | None") -> None:
        if number != signal.SIGHUP:
            self._is_stopping = True
        self._signal(number)

    def _signal(self, number: int) -> None:
        for broker in self._brokers:
            if broker.process is not None and broker.process.poll() is None:
                os.kill(broker.process.pid, number)
