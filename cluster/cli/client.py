"""Connections to a broker with confluent-kafka: reachability, client settings, and failures in words."""

import os
import shlex
import signal
import socket
import ssl
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from cordwood.client.credentials import NotAuthenticated
from cordwood.client.properties import read_properties
from cordwood.client.security import OPEN, ClientSecurity, check_spelling, client_security
from cordwood.client.tls import TlsFailed, WrongSetting
from cordwood.cluster.cli.exits import ExitCode, Failure, reason_of
from cordwood.cluster.cli.options import DEFAULT_SERVERS

if TYPE_CHECKING:
    from confluent_kafka import KafkaError
    from confluent_kafka.admin import AdminClient

    from cordwood.client.blocking import BlockingConnection

SERVERS_KEY = "bootstrap.servers"
DEFAULT_PORT = 9092
CONNECT_TIMEOUT_S = 5.0
PROBE_TIMEOUT_S = 2.0
ANSWER_TIMEOUT_S = 20.0

T = TypeVar("T")


def parse_servers(servers: str) -> list[tuple[str, int]]:
    """Parse `host[:port],…`; IPv6 hosts are in brackets. Raises Failure with exit code 2."""
    return [_parse_server(server.strip()) for server in servers.split(",") if server.strip()] or [_parse_server("")]


def _parse_server(server: str) -> tuple[str, int]:
    host, colon, port = server.rpartition(":")
    if not colon or server.endswith("]"):
        host, port = server, str(DEFAULT_PORT)
    is_port = port.isdecimal() and len(port) < 6 and 0 < int(port) < 65536
    if not host or "/" in host or not is_port:
        raise Failure(f"--bootstrap-server {server!r} is not an address: give host:port.", ExitCode.USAGE)
    return host.removeprefix("[").removesuffix("]"), int(port)


@dataclass(frozen=True, slots=True)
class Target:
    """The cluster that a command is about: bootstrap servers, and how to connect to them."""

    servers: str
    security: ClientSecurity = OPEN


def target_of(servers: str, config: Path | None) -> Target:
    """Return the target of the options --bootstrap-server and --command-config. Raises Failure with exit code 2.

    Relative paths in the file are relative to the working directory, as in librdkafka.
    """
    try:
        given = {} if config is None else read_properties(config)
    except OSError as error:
        raise Failure(f"cannot read --command-config {config}: {error.strerror}.", ExitCode.USAGE) from None
    except WrongSetting as mistake:
        raise Failure(f"--command-config {mistake}.", ExitCode.USAGE) from None
    if servers == DEFAULT_SERVERS:
        servers = given.get(SERVERS_KEY, servers)
    try:
        check_spelling(given, (SERVERS_KEY,))
        return Target(servers, client_security(given))
    except WrongSetting as mistake:
        raise Failure(f"{config}: {mistake}.", ExitCode.USAGE) from None


def require_reachable(target: Target) -> None:
    """Raise Failure with exit code 3 unless one of the servers takes connections, with TLS and SASL if they are given.

    The Kafka client would retry forever, and report that only in its log.
    """
    reasons = []
    for address in parse_servers(target.servers):
        reason = why_unreachable(address)
        if reason is None and target.security != OPEN:
            reason = _why_not_authenticated(address, target.security)
        elif reason is None and (wanted := _wanted_protocol(address)):
            where = address_text(*address)
            reason = (
                f"{where} closed the connection: it seems to require security.protocol={wanted}, see --command-config"
            )
        if reason is None:
            return
        reasons.append(reason)
    why = ", ".join(dict.fromkeys(reasons))
    raise Failure(f"no broker at {target.servers} ({why}). {_remedy(target.servers)}", ExitCode.UNREACHABLE)


def _remedy(servers: str) -> str:
    """Return what to do if no server takes connections: `cordwood serve` would not start a broker of a cluster."""
    from cordwood.cluster.cli.local.default_cluster import addresses as addresses_of_up

    addresses = addresses_of_up()
    named = {address_text(*server) for server in parse_servers(servers)}
    if named.isdisjoint(addresses):
        return "Start one with `cordwood serve`, or name another with --bootstrap-server."
    others = ",".join(each for each in addresses if each not in named)
    remedy = "Start it again with `cordwood up`"
    return f"{remedy}, or name the others with --bootstrap-server {others}." if others else f"{remedy}."


def _why_not_authenticated(address: tuple[str, int], security: ClientSecurity) -> str | None:
    """Return why a broker that takes connections does not answer; None if it does.

    Raises Failure where the settings are wrong: no other broker would take them.
    """
    from cordwood.client.blocking import connect

    where = address_text(*address)
    try:
        connect(where, CONNECT_TIMEOUT_S, "cordwood-cli", security).close()
    except WrongSetting as mistake:
        raise Failure(f"--command-config: {mistake}.", ExitCode.USAGE) from None
    except (NotAuthenticated, TlsFailed) as error:
        raise Failure(f"{error} (--command-config).") from None
    except (ConnectionError, ssl.SSLEOFError) as error:
        wanted = "security.protocol" if security.sasl is None else "security.protocol and sasl.mechanism"
        return f"{where} closed the connection: check {wanted} in --command-config ({error})"
    except OSError as error:
        return f"{where}: {error}"
    return None


def _wanted_protocol(address: tuple[str, int]) -> str:
    """Return the security.protocol that a broker seems to require, since it closes others; empty if none."""
    from kio.schema.api_versions.v0.request import ApiVersionsRequest
    from kio.schema.metadata.v4.request import MetadataRequest

    from cordwood.client.blocking import connect

    wanted = "SSL or SASL_SSL"
    try:
        with connect(address_text(*address), PROBE_TIMEOUT_S, "cordwood-cli") as connection:
            connection.ask(ApiVersionsRequest())
            wanted = "SASL_PLAINTEXT"
            connection.ask(MetadataRequest(topics=(), allow_auto_topic_creation=False))
    except TimeoutError:
        return ""
    except OSError:
        return wanted
    return ""


def address_text(host: str, port: int) -> str:
    """Return host:port, with an IPv6 host in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def why_unreachable(address: tuple[str, int]) -> str | None:
    """Return why a host and port does not accept connections, in the system's words; None if it does."""
    try:
        socket.create_connection(address, timeout=CONNECT_TIMEOUT_S).close()
    except socket.gaierror as error:
        return (error.strerror or "unknown host").lower()
    except OSError as error:
        return os.strerror(error.errno).lower() if error.errno and error.errno > 0 else str(error)
    return None


def client_settings(target: Target, **more: Any) -> dict[str, Any]:
    """Return the settings of a client. The library's own log is off: errors are reported as failures."""
    own = {"bootstrap.servers": target.servers, "client.id": "cordwood-cli", "log_level": 0}
    return {**own, **target.security.for_librdkafka(), **more}


@contextmanager
def talking_to(target: Target) -> Iterator[None]:
    """Run a block that uses a Kafka client. A Kafka error in the block becomes a Failure.

    SIGTERM ends the block as Ctrl-C does, so that a consumer leaves its group and a producer flushes its records.
    """
    require_reachable(target)
    from confluent_kafka import KafkaException

    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    except KafkaException as error:
        raise failure_of(error.args[0], target) from None
    except SystemError as error:
        # The library raises an error that ends the client in its next callback, which Python takes for a bug of that.
        if not isinstance(error.__cause__, KafkaException):
            raise
        raise failure_of(error.__cause__.args[0], target) from None
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def admin_client(target: Target) -> "Iterator[AdminClient]":
    """Yield a connected AdminClient, inside `talking_to`."""
    with talking_to(target):
        from confluent_kafka.admin import AdminClient

        yield AdminClient(client_settings(target))


@contextmanager
def blocking_connection(target: Target, timeout_s: float = CONNECT_TIMEOUT_S) -> "Iterator[BlockingConnection]":
    """Yield a connection to the first server that answers. An OSError in the block becomes a Failure."""
    from cordwood.client.blocking import connect

    require_reachable(target)
    for server in parse_servers(target.servers):
        try:
            connection = connect(address_text(*server), timeout_s, "cordwood-cli", target.security)
        except OSError as error:
            last = error
            continue
        with connection:
            try:
                yield connection
            except OSError as error:
                raise Failure(
                    f"{address_text(*server)} did not answer ({reason_of(error)}).", ExitCode.UNREACHABLE
                ) from None
            return
    raise Failure(f"no broker at {target.servers} answers ({last}).", ExitCode.UNREACHABLE)


def answer(future: "Future[T]") -> T:
    """Wait for one answer of an AdminClient. Raises Failure if there is none in time."""
    try:
        return future.result(ANSWER_TIMEOUT_S)
    except TimeoutError:
        raise Failure(f"the broker did not answer within {ANSWER_TIMEOUT_S:.0f} s.", ExitCode.UNREACHABLE) from None


def running_brokers(admin: "AdminClient") -> list[int]:
    """Return the ids of the brokers that run, in ascending order. Raises KafkaException."""
    return sorted(admin.list_topics(timeout=ANSWER_TIMEOUT_S).brokers)


def failure_of(error: "KafkaError", target: Target) -> Failure:
    """Return the failure for an error of confluent-kafka."""
    from confluent_kafka import KafkaError

    from cordwood.cluster.proposals.topics import NAME_RULE

    unreachable = {
        KafkaError._TRANSPORT,
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
    }
    if error.code() in unreachable:
        return Failure(
            f"{target.servers} accepts connections but does not answer ({error.str()})."
            " Check that it is a Kafka broker, that its advertised.listeners can be reached from this machine,"
            " and with `cordwood status` that a majority of its voters runs.",
            ExitCode.UNREACHABLE,
        )
    rule = f": a topic's name is {NAME_RULE}" if error.code() == KafkaError.TOPIC_EXCEPTION else ""
    return Failure(f"the broker refused: {error.str().removeprefix('Broker: ')} ({error.name()}){rule}.")


def no_such_topic(topic: str) -> Failure:
    """Return the failure for a missing topic, the most common mistake."""
    return Failure(
        f"there is no topic {topic!r}. Create it with `cordwood topic create {shlex.quote(topic)}`, or list the topics"
        " with `cordwood topic list`."
    )
