"""kafka-python's admin client, for requests that only it has: replicas, log directories, quorum, reassignments."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from cordwood.client.security import ClientSecurity
from cordwood.cluster.cli.client import (
    Target,
    address_text,
    parse_servers,
    require_reachable,
    why_unreachable,
)
from cordwood.cluster.cli.exits import ExitCode, Failure

if TYPE_CHECKING:
    from kafka import KafkaAdminClient

TIMEOUT_MS = 5_000
PATIENCE_S = 20.0
"""Time for all requests together. Requests are retried meanwhile: the client may ask a broker that is down."""
PAUSE_S = 0.05


@contextmanager
def cluster_admin(target: Target) -> "Iterator[KafkaAdminClient]":
    """Yield a connected client of the cluster. A Kafka error in the block becomes a Failure."""
    require_reachable(target)
    from kafka.errors import KafkaError

    # Errors are reported as failures; the library's log would repeat them.
    logging.getLogger("kafka").addHandler(logging.NullHandler())
    logging.getLogger("kafka").propagate = False
    client = None
    try:
        client = _connected(target)
        yield client
    except KafkaError as error:
        raise failure_of(error, target) from None
    finally:
        if client is not None:
            client.close()


def _connected(target: Target) -> "KafkaAdminClient":
    """Return a client that begins with the first server that answers: kafka-python may retry a hung one forever."""
    from kafka import KafkaAdminClient
    from kafka.errors import KafkaError, KafkaTimeoutError

    failure: KafkaError = KafkaTimeoutError("none of the bootstrap servers answers")
    for host, port in parse_servers(target.servers):
        if why_unreachable((host, port)):
            continue
        try:
            return KafkaAdminClient(
                bootstrap_servers=[address_text(host, port)],
                client_id="cordwood-cli",
                request_timeout_ms=TIMEOUT_MS,
                bootstrap_timeout_ms=TIMEOUT_MS,
                **_security_of(target.security),
            )
        except KafkaError as error:
            failure = error
    raise failure


def _security_of(security: ClientSecurity) -> dict[str, Any]:
    """Return kafka-python's arguments for these settings."""
    given: dict[str, Any] = {"security_protocol": str(security.protocol)}
    if security.tls is not None:
        given |= {"ssl_context": security.tls.context(), "ssl_check_hostname": security.tls.checks_host_name}
    if security.sasl is not None:
        given["sasl_mechanism"] = str(security.sasl.mechanism)
        if security.bearer is None:
            given |= {"sasl_plain_username": security.sasl.username, "sasl_plain_password": security.sasl.password}
        else:
            given["sasl_oauth_token_provider"] = _token_provider(security)
    return given


def _token_provider(security: ClientSecurity) -> Any:
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class Provider(AbstractTokenProvider):  # type: ignore[misc]
        """Passes tokens on to kafka-python."""

        def token(self) -> str:
            credentials = security.credentials()
            assert credentials is not None, "a source of tokens belongs to a mechanism"
            return credentials.bearer_token

    return Provider()


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


def failure_of(error: Exception, target: Target) -> Failure:
    """Return the failure for an error of kafka-python."""
    from kafka.errors import KafkaConnectionError, KafkaTimeoutError, NodeNotReadyError, RequestTimedOutError

    if isinstance(error, KafkaConnectionError | KafkaTimeoutError | NodeNotReadyError | RequestTimedOutError):
        is_known = isinstance(error, NodeNotReadyError) and error.args
        silent = f"broker {error.args[0]} did not answer" if is_known else f"a broker did not answer ({error})"
        return Failure(
            f"{target.servers} accepts connections, but {silent}."
            " Try again in a few seconds: the failover of a lost broker takes about one second.",
            ExitCode.UNREACHABLE,
        )
    return Failure(f"the broker refused: {str(error).rstrip('.')}.")
