"""A blocking connection to a broker with pipelined requests, and the API versions that the reader needs."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from kio.schema.api_versions.v0 import ApiVersionsRequest
from kio.schema.errors import ErrorCode
from kio.schema.fetch.v11 import FetchRequest
from kio.schema.list_offsets.v5 import ListOffsetsRequest
from kio.schema.metadata.v8 import MetadataRequest

from cordwood.client.blocking import connect
from cordwood.client.codec import FRAME_BYTES_MAX, BadFrameLength, ResponseFrames
from cordwood.client.credentials import NotAuthenticated
from cordwood.client.tls import TlsFailed, WrongSetting, explained
from cordwood.spark.client.settings import Address, ClientSettings
from cordwood.spark.errors import RequestRefused

NEEDED: Mapping[type, str] = dict.fromkeys((FetchRequest, ListOffsetsRequest, MetadataRequest), "2.3")
"""The requests of a reader, and the first version of Kafka that serves them: without tagged fields and topic ids."""


class ConnectionFailed(Exception):
    """A retriable failure: a broken connection, an unreachable broker, a broker that is not the leader."""


class BrokerConnection:
    """A connection to one broker, open from the start and unusable after ConnectionFailed."""

    def __init__(self, address: Address, settings: ClientSettings, needed: Mapping[type, str] = NEEDED) -> None:
        """Connect and check that `needed` is served.

        Raises ConnectionFailed, and RequestRefused if it is not or if one side does not trust the other.
        """
        self.address = address
        timeout_s = settings.request_timeout_ms / 1000
        # The buffer is kept: otherwise each Fetch would allocate another one.
        frames = ResponseFrames(kept_bytes=FRAME_BYTES_MAX)
        try:
            self._connection = connect(str(address), timeout_s, settings.client_id, settings.security, frames)
        except (NotAuthenticated, TlsFailed, WrongSetting) as error:
            raise RequestRefused(f"no connection to {address}: {error}") from None
        except OSError as error:
            raise ConnectionFailed(f"{address} does not accept connections ({error})") from error
        try:
            self._check_versions(needed)
        except (ConnectionFailed, RequestRefused):
            self.close()
            raise

    @property
    def has_unanswered(self) -> bool:
        """Whether responses are outstanding. The connection cannot be reused then."""
        return not self._connection.is_idle

    def wait_at_most(self, timeout_s: float) -> None:
        """Set the timeout of the following sends and receives."""
        self._connection.socket.settimeout(timeout_s)

    def close(self) -> None:
        """Close the socket, even with responses outstanding."""
        self._connection.close()

    def ask(self, request: Any) -> Any:
        """Send a request and return its response. Raises ConnectionFailed."""
        self.send(request)
        return self.receive()

    def send(self, request: Any) -> None:
        """Send a request; `receive` returns its response later. Raises ConnectionFailed."""
        with self._failing():
            self._connection.send(request)

    def receive(self) -> Any:
        """Return the response to the oldest outstanding request. Raises ConnectionFailed."""
        with self._failing():
            return self._connection.receive()

    def _check_versions(self, needed: Mapping[Any, str]) -> None:
        answer = self.ask(ApiVersionsRequest())
        if answer.error_code is not ErrorCode.none:
            raise RequestRefused(f"{self.address} does not report its API versions ({answer.error_code.name})")
        served = {api.api_key: range(api.min_version, api.max_version + 1) for api in answer.api_keys}
        for request, since in needed.items():
            if request.__version__ not in served.get(request.__api_key__, range(0)):
                raise RequestRefused(
                    f"{self.address} does not serve {request.__name__} version {request.__version__}, which every"
                    f" Cordwood broker and every Kafka broker since {since} supports: upgrade the broker"
                )

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """Raise ConnectionFailed for an OSError, and RequestRefused for one that stays."""
        try:
            yield
        except TimeoutError as error:
            timeout_s = self._connection.socket.gettimeout()
            raise ConnectionFailed(f"{self.address} did not answer for {timeout_s:g} s") from error
        except BadFrameLength as error:
            raise ConnectionFailed(f"{self.address} does not use Kafka's protocol ({error})") from error
        except OSError as error:
            # With TLS 1.3, a client gets the refusal of its certificate only when it reads.
            error = explained(error, str(self.address))
            if isinstance(error, NotAuthenticated | TlsFailed):
                raise RequestRefused(str(error)) from None
            raise ConnectionFailed(f"the connection to {self.address} broke ({error})") from error
