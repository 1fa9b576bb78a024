"""Connections to a broker with confluent-kafka: reachability, client settings, and failures in words."""

import os
import signal
import socket
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from cordwood.cluster.cli.exits import ExitCode, Failure

if TYPE_CHECKING:
    from confluent_kafka import KafkaError
    from confluent_kafka.admin import AdminClient

DEFAULT_PORT = 9092
CONNECT_TIMEOUT_S = 5.0
ANSWER_TIMEOUT_S = 20.0

T = TypeVar("T")


def parse_servers(servers: str) -> list[tuple[str, int]]:
    """Parse `host[:port],…`; IPv6 hosts are in brackets. Raises Failure with exit code 2."""
    return [_parse_server(server.strip()) for server in servers.split(",") if server.strip()] or [_parse_server("")]


def _parse_server(server: str) -> tuple[str, int]:
    host, colon, port = server.rpartition(":")
    if not colon or server.endswith("]"):
        host, port = server, str(DEFAULT_PORT)
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise Failure(f"--bootstrap-server {server!r} is not an address: give host:port.", ExitCode.USAGE)
    return host.removeprefix("[").removesuffix("]"), int(port)


def require_reachable(servers: str) -> None:
    """Raise Failure with exit code 3 unless one of the servers takes connections.

    The Kafka client would retry forever, and report that only in its log.
    """
    reasons = []
    for address in parse_servers(servers):
        reason = why_unreachable(address)
        if reason is None:
            return
        reasons.append(reason)
    raise Failure(
        f"no broker at {servers} ({', '.join(dict.fromkeys(reasons))}). "
        "Start one with `cordwood serve`, or name another with --bootstrap-server.",
        ExitCode.UNREACHABLE,
    )


def why_unreachable(address: tuple[str, int]) -> str | None:
    """Return why a host and port does not accept connections, in the system's words; None if it does."""
    try:
        socket.create_connection(address, timeout=CONNECT_TIMEOUT_S).close()
    except OSError as error:
        return os.strerror(error.errno).lower() if error.errno and error.errno > 0 else str(error)
    return None


def client_settings(servers: str, **more: Any) -> dict[str, Any]:
    """Return the settings of a client. The library's own log is off: errors are reported as failures."""
    return {"bootstrap.servers": servers, "client.id": "cordwood-cli", "log_level": 0, **more}


@contextmanager
def talking_to(servers: str) -> Iterator[None]:
    """Run a block that uses a Kafka client. A Kafka error in the block becomes a Failure.

    SIGTERM ends the block as Ctrl-C does, so that a consumer leaves its group and a producer flushes its records.
    """
    require_reachable(servers)
    from confluent_kafka import KafkaException

    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    except KafkaException as error:
        raise failure_of(error.args[0], servers) from None
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def admin_client(servers: str) -> "Iterator[AdminClient]":
    """Yield a connected AdminClient, inside `talking_to`."""
    with talking_to(servers):
        from confluent_kafka.admin import AdminClient

        yield AdminClient(client_settings(servers))


def answer(future: "Future[T]") -> T:
    """Wait for one answer of an AdminClient. Raises Failure if there is none in time."""
    try:
        return future.result(ANSWER_TIMEOUT_S)
    except TimeoutError:
        raise Failure(f"the broker did not answer within {ANSWER_TIMEOUT_S:.0f} s.", ExitCode.UNREACHABLE) from None


def failure_of(error: "KafkaError", servers: str) -> Failure:
    """Return the failure for an error of confluent-kafka."""
    from confluent_kafka import KafkaError

    unreachable = {
        KafkaError._TRANSPORT,
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
    }
    if error.code() in unreachable:
        return Failure(
            f"{servers} accepts connections but does not answer ({error.str()}). Check that it is a Kafka"
            " broker, and that its advertised.listeners can be reached from this machine.",
            ExitCode.UNREACHABLE,
        )
    return Failure(f"the broker refused: {error.str()} ({error.name()}).")


def no_such_topic(topic: str) -> Failure:
    """Return the failure for a missing topic, the most common mistake."""
    return Failure(
        f"there is no topic {topic!r}. Create it with `cordwood topic create {topic}`, or list the topics"
        " with `cordwood topic list`."
    )
