"""kafka-python's admin client, for requests that only it has: replicas, log directories, quorum, reassignments."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from cordwood.cluster.cli.client import parse_servers, require_reachable, why_unreachable
from cordwood.cluster.cli.exits import ExitCode, Failure

if TYPE_CHECKING:
    from kafka import KafkaAdminClient

TIMEOUT_MS = 5_000
PATIENCE_S = 20.0
"""Time for all requests together. Requests are retried meanwhile: the client may ask a broker that is gone."""
PAUSE_S = 0.05


@contextmanager
def cluster_admin(servers: str) -> "Iterator[KafkaAdminClient]":
    """Yield a connected client of the cluster. A Kafka error in the block becomes a Failure."""
    require_reachable(servers)
    from kafka.errors import KafkaError

    # Errors are reported as failures; the library's log would repeat them.
    logging.getLogger("kafka").addHandler(logging.NullHandler())
    logging.getLogger("kafka").propagate = False
    client = None
    try:
        client = _connected(servers)
        yield client
    except KafkaError as error:
        raise failure_of(error, servers) from None
    finally:
        if client is not None:
            client.close()


def _connected(servers: str) -> "KafkaAdminClient":
    """Return a client that begins with the first server that answers: kafka-python may retry a hung one forever."""
    from kafka import KafkaAdminClient
    from kafka.errors import KafkaError, KafkaTimeoutError

    failure: KafkaError = KafkaTimeoutError("none of the bootstrap servers answers")
    for host, port in parse_servers(servers):
        if why_unreachable((host, port)):
            continue
        server = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            return KafkaAdminClient(
                bootstrap_servers=[server],
                client_id="cordwood-cli",
                request_timeout_ms=TIMEOUT_MS,
                bootstrap_timeout_ms=TIMEOUT_MS,
            )
        except KafkaError as error:
            failure = error
    raise failure


def answer_of(ask: Callable[[], Any], deadline_s: float) -> Any:
    """Retry a request until a broker answers. Raises KafkaError: a refusal immediately, others after the deadline."""
    from kafka.errors import RetriableError

    while True:
        try:
            return ask()
        except RetriableError:
            if time.monotonic() >= deadline_s:
                raise
            time.sleep(PAUSE_S)


def failure_of(error: Exception, servers: str) -> Failure:
    """Return the failure for an error of kafka-python."""
    from kafka.errors import KafkaConnectionError, KafkaTimeoutError, NodeNotReadyError, RequestTimedOutError

    if isinstance(error, KafkaConnectionError | KafkaTimeoutError | NodeNotReadyError | RequestTimedOutError):
        return Failure(
            f"{servers} accepts connections, but a broker did not answer ({error}). Try again in a few seconds:"
            " the failover of a lost broker takes about one second.",
            ExitCode.UNREACHABLE,
        )
    return Failure(f"the broker refused: {error}.")
