"""Plan of `cordwood up`: the brokers of a new cluster, or the existing ones and those that are added."""

import secrets
import socket
from dataclasses import dataclass

from cordwood.cluster.cli.cert import CA_CERTIFICATE
from cordwood.cluster.cli.exits import ExitCode, Failure
from cordwood.cluster.cli.local import layout
from cordwood.cluster.cli.local.directory import ClusterDirectory, LocalBroker
from cordwood.cluster.cli.local.processes import why_not_free

BROKERS = 3
KAFKA_PORT = 9092
HTTP_PORT = 8080
VOTER_PORT_DISTANCE, BROKER_PORT_DISTANCE = 1000, 2000
PORT_END = 1 << 16
SECRET_BYTES = 16
RACK, HOST_PREFIX = "broker.rack", "host-"


@dataclass(frozen=True, slots=True)
class UpOptions:
    """The options that the user gave; None for those left out."""

    brokers: int | None = None
    kafka_port: int | None = None
    http_port: int | None = None
    voters: int | None = None
    overrides: tuple[str, ...] = ()
    secure: bool = False
    processes: int | None = None
    """Brokers on each host; `brokers` then counts the hosts."""


def members_wanted(directory: ClusterDirectory, wanted: UpOptions) -> list[LocalBroker]:
    """Return the brokers of the cluster, by number. Writes nothing. Raises Failure with exit code 2."""
    there = directory.members()
    if not there:
        return _new_cluster(directory, wanted)
    _require_unchanged(directory, there, wanted)
    kept = [
        LocalBroker(member.directory, layout.checked(layout.given_rows(member.settings), wanted.overrides))
        for member in there
    ]
    return kept + _joining(directory, there, wanted)


def _new_cluster(directory: ClusterDirectory, wanted: UpOptions) -> list[LocalBroker]:
    processes = wanted.processes or 1
    brokers = (wanted.brokers or BROKERS) * processes
    kafka_port, http_port = wanted.kafka_port or KAFKA_PORT, wanted.http_port or HTTP_PORT
    voters = layout.default_voters(brokers) if wanted.voters is None else wanted.voters
    if voters not in layout.VOTER_COUNTS or voters > brokers:
        raise Failure(f"--voters {voters}: give 1, 3 or 5, and at most --brokers {brokers}.", ExitCode.USAGE)
    if "," in str(directory.path):
        raise Failure(
            f"--data-dir {directory.path}: the path of a log directory must not contain a comma.", ExitCode.USAGE
        )
    _require_in_range(kafka_port, http_port, brokers)
    # Voters are on different hosts, as far as there are enough.
    by_host = sorted(range(1, brokers + 1), key=lambda broker: divmod(broker - 1, processes)[::-1])
    voter_ports = {broker: _port_near(kafka_port + broker - 1 + VOTER_PORT_DISTANCE) for broker in by_host[:voters]}
    shared = layout.shared_rows(brokers, voter_ports, secrets.token_hex(SECRET_BYTES))
    if wanted.secure:
        shared |= layout.secure_rows(str(directory.security / CA_CERTIFICATE), secrets.token_hex(SECRET_BYTES))
    return [
        directory.new_member(
            broker,
            _ports(kafka_port + broker - 1, http_port + broker - 1, is_secure=wanted.secure),
            shared | _rack_of(broker, processes),
            wanted.overrides,
        )
        for broker in range(1, brokers + 1)
    ]


def _rack_of(broker: int, processes: int) -> dict[str, str]:
    """Return the rack of a broker that shares a host with others: the host's name."""
    return {RACK: f"{HOST_PREFIX}{(broker - 1) // processes + 1}"} if processes > 1 else {}


def _processes_of(there: list[LocalBroker]) -> int:
    """Return how many brokers of a cluster share a host."""
    rack = there[0].settings.broker_rack or ""
    return sum(member.settings.broker_rack == rack for member in there) if rack.startswith(HOST_PREFIX) else 1


def _joining(directory: ClusterDirectory, there: list[LocalBroker], wanted: UpOptions) -> list[LocalBroker]:
    """Return the brokers to add to a cluster. They are observers of the metadata: the voters do not change."""
    first, number, processes = there[0], there[-1].broker_id, _processes_of(there)
    count = (wanted.brokers * processes if wanted.brokers else len(there)) - len(there)
    if count and not first.settings.controller_quorum_voters:
        raise Failure(
            f"the cluster in {directory.path} was created with one broker and cannot be extended: create a new"
            " cluster in another --data-dir.",
            ExitCode.USAGE,
        )
    kafka_port = first.kafka_port - first.broker_id
    http_port = int(first.settings.http_listen.rpartition(":")[2] or HTTP_PORT) - first.broker_id
    _require_in_range(kafka_port, http_port, number + count + 1)
    shared, is_secure = layout.rows_to_share(first.settings), layout.is_secure(first.settings)
    return [
        directory.new_member(
            broker,
            _ports(kafka_port + broker, http_port + broker, is_secure=is_secure),
            shared | _rack_of(broker, processes),
            wanted.overrides,
        )
        for broker in range(number + 1, number + count + 1)
    ]


def _ports(kafka_port: int, http_port: int, *, is_secure: bool) -> layout.Ports:
    return layout.Ports(kafka_port, http_port, _port_near(kafka_port + BROKER_PORT_DISTANCE) if is_secure else None)


def _require_unchanged(directory: ClusterDirectory, there: list[LocalBroker], wanted: UpOptions) -> None:
    """Raise Failure for options that an existing cluster cannot follow."""
    first = there[0]
    if wanted.secure and not layout.is_secure(first.settings):
        raise Failure(
            f"the cluster in {directory.path} was created without --secure: create a new one in another --data-dir, or"
            " close it listener by listener, as the documentation describes (Deploy).",
            ExitCode.USAGE,
        )
    hosts = len(there) // _processes_of(there)
    if wanted.brokers is not None and wanted.brokers < hosts:
        raise Failure(
            f"--brokers {wanted.brokers}: the cluster in {directory.path} has {hosts}, and `cordwood up`"
            " does not remove brokers.",
            ExitCode.USAGE,
        )
    settled = {
        "--port": (wanted.kafka_port, first.kafka_port),
        "--http-port": (wanted.http_port, int(first.settings.http_listen.rpartition(":")[2] or 0)),
        "--processes": (wanted.processes, _processes_of(there)),
        "--voters": (wanted.voters, len(first.settings.controller_quorum_voters) or 1),
    }
    for option, (asked, is_now) in settled.items():
        if asked is not None and asked != is_now:
            raise Failure(
                f"{option} {asked}: the cluster in {directory.path} was created with {is_now}, which cannot be"
                f" changed. Leave out {option}, or create a new cluster in another --data-dir.",
                ExitCode.USAGE,
            )


def _require_in_range(kafka_port: int, http_port: int, brokers: int) -> None:
    for option, port in (("--port", kafka_port), ("--http-port", http_port)):
        if port + brokers > PORT_END:
            raise Failure(f"{option} {port}: there are not enough ports above it. Give a lower one.", ExitCode.USAGE)


def _port_near(port: int) -> int:
    """Return the port, or any free one if it is taken or does not exist."""
    if port < PORT_END and why_not_free(f"{layout.HOST}:{port}") is None:
        return port
    with socket.socket() as probe:
        probe.bind((layout.HOST, 0))
        free: int = probe.getsockname()[1]
        return free
