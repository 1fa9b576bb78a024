"""Processes of local brokers: start, the wait until all can be used, identification by pid, free ports, and stop."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Set
from pathlib import Path

from cordwood.client.blocking import connect
from cordwood.client.security import OPEN, ClientSecurity
from cordwood.cluster.cli.client import Target, client_settings, parse_servers, why_unreachable
from cordwood.cluster.cli.exits import Failure
from cordwood.cluster.cli.local.directory import LocalBroker

STOP_S = 30.0
"""Time in which all brokers together have to stop."""

POLL_S = 0.05

USABLE_S = 60.0
USABLE_POLL_S = 0.1
ANSWER_S = 2.0
TAIL_LINES = 8


def start(member: LocalBroker, first_users: Path | None = None) -> "subprocess.Popen[bytes]":
    """Start one broker in its own session: neither Ctrl-C nor the end of this process reaches it.

    `first_users` is a file with the users of a cluster that this broker may have to found.

    The broker reads its configuration file only: CORDWOOD_* variables would apply to all brokers.
    """
    environ = {name: value for name, value in os.environ.items() if not name.startswith("CORDWOOD_")}
    users = [] if first_users is None else ["--add-scram", f"@{first_users}"]
    with member.log.open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "cordwood.cluster.cli", "serve", "--config", str(member.config), *users],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environ,
            # `-m` puts the working directory on the path: it must have no packages in it.
            cwd=member.directory,
            start_new_session=True,
        )


def is_running(member: LocalBroker, pid: int | None) -> bool:
    """Return True if this process is this broker: another process may have got the same process id."""
    if pid is None:
        return False
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return os.fsencode(member.config) in words


def end_in_words(exit_code: int) -> str:
    """Return a process's end in words, after its name. A negative code is the signal that ended it."""
    return f"was killed by signal {-exit_code}" if exit_code < 0 else f"ended with exit code {exit_code}"


def require_free_ports(members: Iterable[LocalBroker]) -> None:
    """Raise Failure if a broker cannot listen on one of its addresses, or two brokers have the same."""
    users: dict[str, int] = {}
    for member in members:
        for setting, address in member.addresses():
            user = users.get(address)
            reason = why_not_free(address) if user is None else f"broker {user} does"
            if reason:
                is_there = member.config.exists()
                way_out = (
                    f"change {setting} in {member.config}"
                    if is_there
                    else "choose other ports with --port and --http-port"
                )
                raise Failure(f"broker {member.broker_id} cannot listen on {address} ({reason}); {way_out}.")
            users[address] = member.broker_id


def why_not_free(address: str) -> str | None:
    """Return why a host:port cannot be listened on now, in the system's words; None if it can."""
    host, _, port = address.rpartition(":")
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            # Closing connections of a broker that has just ended must not block its port.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(where)
    except OSError as error:
        return (error.strerror or str(error)).lower()
    return None


class Awaited:
    """A broker that has to become usable. Failures quote its log from here on.

    `process` is set for a broker that was started here, so that its end is noticed.
    """

    def __init__(self, member: LocalBroker) -> None:
        self.member = member
        self.process: subprocess.Popen[bytes] | None = None
        self._log_start = member.log.stat().st_size if member.log.exists() else 0

    @property
    def exit_code(self) -> int | None:
        """The exit code of a broker that was started here and has ended; a negative one is a signal."""
        return self.process.poll() if self.process else None

    def last_words(self) -> str:
        """Return the end of the broker's log, for the message of a failure."""
        with self.member.log.open("rb") as log:
            log.seek(self._log_start)
            lines = log.read().decode(errors="replace").splitlines()
        said = "".join(f"\n    {line}" for line in lines[-TAIL_LINES:])
        return f" The end of {self.member.log}:{said}" if said else f" Its log is empty ({self.member.log})."


def wait_until_usable(brokers: Iterable[Awaited], security: ClientSecurity = OPEN) -> None:
    """Return once each broker answers, sees all the others and has a controller.

    Raises Failure, with the end of its log, for a broker that ended or is not usable within USABLE_S.
    """
    deadline = time.monotonic() + USABLE_S
    waiting = list(brokers)
    everyone = {broker.member.broker_id for broker in waiting}
    while waiting:
        for broker in waiting:
            _require_running(broker)
        lacking = {broker: what_is_lacking(Target(broker.member.kafka, security), everyone) for broker in waiting}
        waiting = [broker for broker, what in lacking.items() if what]
        if waiting and time.monotonic() > deadline:
            raise _took_too_long(lacking)
        if waiting:
            time.sleep(USABLE_POLL_S)


def what_is_lacking(target: Target, all_brokers: Set[int]) -> str | None:
    """Return why a broker cannot be used yet; None if it can. The target has its address only."""
    if why_unreachable(parse_servers(target.servers)[0]):
        return "does not accept connections"
    if target.security != OPEN:
        try:
            connect(target.servers, ANSWER_S, security=target.security).close()
        except OSError as error:
            return f"does not accept the settings in client.properties ({error})"
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    try:
        metadata = AdminClient(client_settings(target)).list_topics(timeout=ANSWER_S)
    except KafkaException:
        return "does not answer"
    missing = sorted(all_brokers - metadata.brokers.keys())
    if missing:
        return f"does not see broker {' and '.join(map(str, missing))}"
    return None if metadata.controller_id >= 0 else "has no controller"


def _require_running(broker: Awaited) -> None:
    if broker.exit_code is not None:
        end = end_in_words(broker.exit_code)
        raise Failure(f"broker {broker.member.broker_id} {end} before it was ready.{broker.last_words()}")


def _took_too_long(lacking: Mapping[Awaited, str | None]) -> Failure:
    short = {broker: what for broker, what in lacking.items() if what}
    in_words = "; ".join(f"broker {broker.member.broker_id} {what}" for broker, what in short.items())
    quoted = next(iter(short)).last_words()
    return Failure(f"the cluster was not ready within {USABLE_S:.0f} s: {in_words}.{quoted}")


def stop(running: Mapping[int, tuple[LocalBroker, int]]) -> Iterator[str]:
    """Stop brokers with SIGTERM and yield a sentence for each. One that does not stop in STOP_S is killed.

    All brokers get the signal together, while a metadata quorum can still elect leaders: one after another, the last
    would wait for a controller in vain.
    """
    for _, pid in running.values():
        _signal(pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_S
    for broker_id, (member, pid) in running.items():
        if _has_ended_by(member, pid, deadline):
            yield f"broker {broker_id} has stopped"
        else:
            _signal(pid, signal.SIGKILL)
            yield f"broker {broker_id} (process {pid}) did not stop in {STOP_S:.0f} s and was killed; see {member.log}"


def _has_ended_by(member: LocalBroker, pid: int, deadline: float) -> bool:
    while is_running(member, pid) or _is_exiting(pid):
        if time.monotonic() >= deadline:
            return False
        time.sleep(POLL_S)
    return True


def _is_exiting(pid: int) -> bool:
    """Return whether a process has given back its memory, and perhaps not its files and ports yet."""
    process = Path(f"/proc/{pid}")
    try:
        state = (process / "stat").read_text().rpartition(")")[2].split()[0]
        return state not in "ZX" and not (process / "cmdline").read_bytes()
    except OSError:
        return False


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass
    except PermissionError:
        raise Failure(f"process {pid} belongs to another user: stop it as that user.") from None
