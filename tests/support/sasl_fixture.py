"""A listener with SASL in virtual time: connections of real frames to a broker's dispatcher, and two users."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

from handlers_fixture import HandlersStory
from kio.index import load_request_schema
from kio.schema.errors import ErrorCode
from virtual_time import run

from cordwood.client.codec import ClientCodec
from cordwood.cluster.broker.credentials import mechanisms_of
from cordwood.cluster.config.listeners import Listener
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.authenticator import Authentication
from cordwood.cluster.kafka.connection import Connection
from cordwood.cluster.kafka.in_process import InProcessChannel
from cordwood.cluster.kafka.registry import served_apis
from cordwood.cluster.kafka.request_measures import RequestMeasures
from cordwood.cluster.kafka.server import Server
from cordwood.cluster.metadata.credentials import ScramMechanism
from cordwood.cluster.metadata.image import Image
from cordwood.cluster.resources.memory import Memory
from cordwood.cluster.security.audit.event import AuditEvent
from cordwood.cluster.security.delegation_tokens import DelegationTokens
from cordwood.cluster.security.principal import Principal
from cordwood.cluster.security.sasl.exchange import Authenticated
from cordwood.cluster.security.sasl.mechanisms import SaslMechanism
from cordwood.cluster.security.sasl.scram_keys import credential_of

ANSWER_S = 1000.0
PASSWORDS = {"alice": "secret", "bob": "geheim"}
ALL = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


class Scripted:
    """A mechanism of one message: the name of the user, and after a space the wall clock's time of its end."""

    def __init__(self, name: str) -> None:
        self.mechanism, self.outcome = name, cast(Authenticated | None, None)

    def step(self, message: bytes) -> bytes:
        name, _, end = message.decode().partition(" ")
        if name == "broken":
            raise RuntimeError("a bug")
        self.outcome = Authenticated(Principal("User", name), expires_at_ms=int(end) if end.strip() else None)
        return b"welcome"


class SaslFixture(HandlersStory):
    """A broker whose clients authenticate."""

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        services = self.services
        services.settings = replace(services.settings, sasl_enabled_mechanisms=(*ALL, "SCRIPTED"), **settings)
        services.served_apis = served_apis()
        self.audited: list[AuditEvent] = []
        services.audit = self
        kinds = list(ScramMechanism)
        image = Image(
            scram_credentials={
                (name, kind): credential_of(password, b"salt of a user", 4096, kind)
                for name, password in PASSWORDS.items()
                for kind in kinds
            }
        )
        services.quorum = cast(Any, SimpleNamespace(image=image))
        tokens = DelegationTokens("", lambda: image, self._clock)
        credentials = cast(Any, SimpleNamespace(tokens=tokens, bearer=SimpleNamespace(validate=None)))
        mechanisms = mechanisms_of(services.settings, lambda: image, services.rng, credentials)
        known = {**mechanisms, "SCRIPTED": SaslMechanism("SCRIPTED", lambda _listener: Scripted("SCRIPTED"))}
        self.authentication = Authentication(services.settings, services, known, self._dispatcher.handle)

    def note(self, event: AuditEvent) -> None:
        """Take an audit event."""
        self.audited.append(event)

    def stranger(self) -> "SaslClient":
        """Return a new connection that is not authenticated."""
        return SaslClient(self)

    async def listen(self) -> int:
        """Accept connections on a free port of 127.0.0.1. Return the port."""
        settings, measures = self.services.settings, RequestMeasures(asyncio.get_running_loop().time)
        self.server = Server(
            settings,
            self.end_of_tick,
            self.replicas.read_piece,
            self._dispatcher.handle,
            lambda _: None,
            measures,
            Memory.unlimited(),
            self.sessions,
            self.authentication,
        )
        (bound,) = await self.server.bind((Listener("SECURE", "SASL_PLAINTEXT", "127.0.0.1", 0, "127.0.0.1", 0),))
        await self.server.serve()
        return bound.port

    def accept(self, received: Callable[[memoryview], None]) -> tuple[Connection, InProcessChannel]:
        connection = Connection(self._here, "SECURE", self._dispatcher.handle)
        self.authentication.begin(connection)
        return connection, InProcessChannel(connection, received)


class SaslClient:
    """A connection of raw frames, and its responses."""

    def __init__(self, broker: SaslFixture) -> None:
        self._responses: asyncio.Queue[bytes] = asyncio.Queue()
        self.connection, self._channel = broker.accept(lambda frame: self._responses.put_nowait(bytes(frame)))
        self._codec = ClientCodec[int]("client")
        self.closed = asyncio.Event()
        self._channel.on_closed = self.closed.set

    @property
    def is_open(self) -> bool:
        return self._channel.is_open

    @property
    def has_answers(self) -> bool:
        return not self._responses.empty()

    def push(self, frame: bytes) -> None:
        """Send a frame, without its length."""
        self._channel.push([len(frame).to_bytes(4, "big") + frame])

    def push_request(self, api: int, version: int, **fields: Any) -> None:
        self._channel.push([self._codec.encode(load_request_schema(api, version)(**fields), 0)])

    async def raw(self) -> bytes:
        """Return the next frame from the broker, without its length."""
        async with asyncio.timeout(ANSWER_S):
            return await self._responses.get()

    async def response(self) -> Any:
        """Return the next response."""
        _, response = self._codec.take(memoryview(await self.raw()))
        return response

    async def ask(self, api: int, version: int, **fields: Any) -> Any:
        self.push_request(api, version, **fields)
        return await self.response()

    async def shake(self, mechanism: str, version: int = 1) -> Any:
        return await self.ask(ApiKey.SASL_HANDSHAKE, version, mechanism=mechanism)

    async def send(self, message: bytes, version: int = 2) -> Any:
        return await self.ask(ApiKey.SASL_AUTHENTICATE, version, auth_bytes=message)

    async def log_in(self, name: str = "alice", password: str | None = None) -> Any:
        """Authenticate by PLAIN. Return the response."""
        assert (await self.shake("PLAIN")).error_code is ErrorCode.none
        return await self.send(f"\0{name}\0{PASSWORDS[name] if password is None else password}".encode())

    async def end(self) -> None:
        """Return once the broker has closed the connection."""
        async with asyncio.timeout(ANSWER_S):
            await self.closed.wait()


def tell(story: Callable[[SaslFixture], Awaitable[None]], **settings: Any) -> None:
    """Run a scenario in virtual time."""

    async def whole() -> None:
        broker = SaslFixture(**settings)
        await story(broker)
        await broker.authentication.close()

    run(whole())
