"""SASL authentication of connections: before it, a connection is handled by its authenticator alone.

| state | frames that are handled | next state |
|---|---|---|
| new | ApiVersions, SaslHandshake | exchanging |
| exchanging | SaslAuthenticate; after SaslHandshake version 0, frames without a header | authenticated or failed |
| authenticated | all, by the dispatcher. SaslHandshake begins a re-authentication (KIP-368) | expired or failed |
| expired | SaslHandshake and SaslAuthenticate | authenticated, or closed by any other request |
| failed | none: the connection closes after the answer | |

The dispatcher passes SaslHandshake and SaslAuthenticate to the connection's authenticator.
"""

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from enum import Enum

import structlog
from kio.schema.errors import ErrorCode
from kio.schema.sasl_authenticate.v2.response import SaslAuthenticateResponse
from kio.schema.sasl_handshake.v1.response import SaslHandshakeResponse

from cordwood.cluster.config.sasl import mechanisms_on, session_ms_max
from cordwood.cluster.config.settings import Settings
from cordwood.cluster.kafka.answer_queue import Slot
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import Services
from cordwood.cluster.kafka.codec import RequestHead, decoding, encoding
from cordwood.cluster.kafka.connection import SASL_APIS, Connection, Handle
from cordwood.cluster.kafka.handlers.sasl_authenticate import refusal
from cordwood.cluster.kafka.receive_buffer import KEY_BYTES, LENGTH_BYTES, REQUEST_BYTES_MIN
from cordwood.cluster.kafka.slow_steps import SlowSteps, TooManyWait
from cordwood.cluster.kafka.wire import Malformed, decoded_bytes
from cordwood.cluster.security.audit.event import AUTHENTICATE, FAILED, AuditEvent
from cordwood.cluster.security.principal import ANONYMOUS, USER, Identity, Principal
from cordwood.cluster.security.sasl.exchange import Authenticated, AuthenticationFailed, SaslExchange
from cordwood.cluster.security.sasl.mechanisms import SaslMechanism
from cordwood.replication.tasks import Tasks
from cordwood.storage.steps import at_once

FRAME_BYTES_MAX = 64 << 10
"""Maximum size of a frame of authentication."""
FRAMES_MAX = 32
"""Maximum number of frames before a connection is authenticated. A mechanism needs up to six."""
REAUTHENTICATION_INTERVAL_S = 1.0
"""Minimum time between two re-authentications of a connection, as in Kafka."""
USER_CHARS_SHOWN = 100

_events = structlog.get_logger("authentication")


class AuthenticationState(Enum):
    """The state of a connection's authentication."""

    NEW = "new"
    EXCHANGING = "exchanging"
    AUTHENTICATED = "authenticated"
    EXPIRED = "expired"
    FAILED = "failed"


class Authentication:
    """The authentication of all connections on listeners with SASL."""

    def __init__(
        self, settings: Settings, services: Services, mechanisms: Mapping[str, SaslMechanism], handle: Handle
    ) -> None:
        """`handle` takes the requests of authenticated connections."""
        self.mechanisms, self.handle, self._wall_clock = mechanisms, handle, services.wall_clock
        self.turns = services.turns
        self.slow_steps = SlowSteps(services.run_blocking)
        self.delay_s = settings.connection_failed_authentication_delay_ms / 1000
        self.tasks = Tasks()
        self._settings, self.audit = settings, services.audit

    def begin(self, connection: Connection) -> None:
        """Let a new connection do nothing but authenticate."""
        offered = [name for name in mechanisms_on(self._settings, connection.listener) if name in self.mechanisms]
        authenticator = Authenticator(self, connection, tuple(offered))
        connection.guard(authenticator, FRAME_BYTES_MAX)

    def lifetime_ms(self, outcome: Authenticated, listener: str, mechanism: str) -> int | None:
        """Return the lifetime of a session that begins now; None if it has no end."""
        limit_ms = session_ms_max(self._settings, listener, mechanism)
        limits = [limit_ms] if limit_ms else []
        if outcome.expires_at_ms is not None:
            limits.append(max(0, outcome.expires_at_ms - self._wall_clock()))
        return min(limits, default=None)

    async def close(self) -> None:
        await self.tasks.close()


class Authenticator:
    """The authentication of one connection."""

    def __init__(self, shared: Authentication, connection: Connection, offered: tuple[str, ...]) -> None:
        self._shared, self._connection, self._offered = shared, connection, offered
        self._loop = asyncio.get_running_loop()
        self._state = AuthenticationState.NEW
        self._frames = 0
        self._mechanism: SaslMechanism | None = None
        self._exchange: SaslExchange | None = None
        """The exchange under way; None if there is none."""
        self._has_headers = True
        self._identity: Identity | None = None
        """The identity that the client has proved; a re-authentication cannot change its principal and mechanism."""
        self._began_again_at = -REAUTHENTICATION_INTERVAL_S
        self._expiry: asyncio.TimerHandle | None = None
        """The end of the session; None if it has no end."""

    def closed(self) -> None:
        """Forget the session of a closed connection."""
        if self._expiry is not None:
            self._expiry.cancel()

    def gate(self, connection: Connection, frame: memoryview, slot: Slot) -> None:
        """Handle a frame of a connection that is not authenticated, or whose session has expired."""
        self._frames += 1
        is_raw = self._exchange is not None and not self._has_headers
        key = -1 if is_raw or len(frame) < REQUEST_BYTES_MIN else int.from_bytes(frame[:KEY_BYTES], "big")
        if self._frames > FRAMES_MAX and self._state is not AuthenticationState.EXPIRED:
            self._close(f"{FRAMES_MAX} requests have not authenticated the client")
        elif is_raw:
            if slot.reserve(decoded_bytes(slot.size), alone=True):
                self._take(bytes(frame), None, slot)
        elif key in self._allowed():
            self._shared.handle(connection, frame, slot)
        elif self._state is AuthenticationState.EXPIRED:
            self._close("the session has expired, and the client has not authenticated again")
        else:
            self._close(f"a request to API {key} while the authentication is {self._state.value}")

    def handle(self, head: RequestHead, frame: memoryview, slot: Slot) -> None:
        """Handle SaslHandshake or SaslAuthenticate. Raises Malformed."""
        if len(frame) > FRAME_BYTES_MAX:
            raise Malformed(f"an authentication of {len(frame)} bytes: the limit is {FRAME_BYTES_MAX}")
        if not slot.reserve(decoded_bytes(slot.size), alone=True):
            return
        request = at_once(decoding(head.api_key, head.version, frame, head.body))
        if head.api_key == ApiKey.SASL_HANDSHAKE:
            _answer(slot, head, self._handshake(request.mechanism, head.version))
        elif not self._take(bytes(request.auth_bytes), head, slot):
            message = "SaslAuthenticate request received after successful authentication"
            _answer(slot, head, refusal(ErrorCode.illegal_sasl_state, message))

    def _close(self, reason: str) -> None:
        """Close the connection, which takes note of the reason itself until the client is authenticated."""
        if not self._connection.is_authenticating:
            self.note(reason)
        self._connection.close(reason)

    def note(self, reason: str, mechanism: str = "", claimed: str = "") -> None:
        """Take note of a failed authentication. `claimed` is the user name that the client gave."""
        principal = Principal(USER, claimed) if claimed else ANONYMOUS
        who = self._identity or Identity(principal, self._connection.client_host, mechanism)
        detail = f"listener {self._connection.listener}: {reason}"
        self._shared.audit.note(AuditEvent(AUTHENTICATE, who, "", FAILED, detail, is_refusal=True))

    def _allowed(self) -> tuple[ApiKey, ...]:
        """Return the APIs that the connection may use before it is authenticated, or after its session has expired."""
        match self._state:
            case AuthenticationState.NEW:
                return (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE)
            case AuthenticationState.EXCHANGING:
                return (ApiKey.SASL_AUTHENTICATE,)
            case AuthenticationState.EXPIRED:
                return SASL_APIS
            case _:
                return ()

    def _handshake(self, name: str, version: int) -> SaslHandshakeResponse:
        if self._state is not AuthenticationState.NEW and not self._may_begin_again(version):
            self.note("SaslHandshake in the middle of a session that does not end, or of an authentication")
            return SaslHandshakeResponse(error_code=ErrorCode.illegal_sasl_state, mechanisms=self._offered)
        if name not in self._offered:
            self.note("the mechanism is not offered on this listener", name[:USER_CHARS_SHOWN])
            return SaslHandshakeResponse(error_code=ErrorCode.unsupported_sasl_mechanism, mechanisms=self._offered)
        self._mechanism = self._shared.mechanisms[name]
        self._exchange = self._mechanism.begin(self._connection.listener)
        self._has_headers = version > 0
        if self._state is AuthenticationState.NEW:
            self._state = AuthenticationState.EXCHANGING
        else:
            self._began_again_at = self._loop.time()
        return SaslHandshakeResponse(error_code=ErrorCode.none, mechanisms=self._offered)

    def _may_begin_again(self, version: int) -> bool:
        """Return whether the client may authenticate again: its session has an end, and it has not just done so."""
        since_s = self._loop.time() - self._began_again_at
        return self._expiry is not None and version > 0 and since_s >= REAUTHENTICATION_INTERVAL_S

    def _take(self, message: bytes, head: RequestHead | None, slot: Slot) -> bool:
        """Pass a message to the exchange, and answer it; without `head` it has no Kafka header.

        Return False if no exchange is under way.
        """
        if self._exchange is None or self._mechanism is None:
            return False
        self._shared.tasks.spawn(self._step(self._exchange, self._mechanism, message, head, slot))
        return True

    async def _step(
        self, exchange: SaslExchange, mechanism: SaslMechanism, message: bytes, head: RequestHead | None, slot: Slot
    ) -> None:
        connection, lifetime_ms = self._connection, 0
        try:
            # Clients that begin together, as those of an attack do, share an iteration of the loop with all others.
            await self._shared.turns.turn()
            self._check_mechanism(mechanism.name)
            if mechanism.needs_thread(message):
                reply = await self._shared.slow_steps.run(connection.client_host, exchange.step, message)
            else:
                reply = exchange.step(message)
            if not connection.is_open:
                return
            if exchange.outcome is not None:
                lifetime_ms = self._succeed(exchange.outcome, mechanism.name)
        except AuthenticationFailed as failure:
            await self._fail(failure, mechanism.name, head, slot)
        except TooManyWait as error:
            connection.close(str(error))
        except Exception as error:
            _events.exception("authentication.broken", client=connection.client_host, mechanism=mechanism.name)
            connection.close(f"the authentication failed: {type(error).__name__}")
        else:
            response = SaslAuthenticateResponse(
                error_code=ErrorCode.none,
                error_message=None,
                auth_bytes=reply,
                session_lifetime=timedelta(milliseconds=lifetime_ms),
            )
            if head is None:
                slot.fill([len(reply).to_bytes(LENGTH_BYTES, "big") + reply])
            else:
                _answer(slot, head, response)

    def _check_mechanism(self, name: str) -> None:
        """Raise AuthenticationFailed for a re-authentication with another mechanism."""
        if self._identity is not None and name != self._identity.mechanism:
            before = self._identity.mechanism
            raise AuthenticationFailed(
                f"SASL mechanism '{name}' requested by client is not supported for re-authentication of mechanism"
                f" '{before}'"
            )

    def _succeed(self, outcome: Authenticated, mechanism: str) -> int:
        """Begin a session. Return its lifetime in ms, 0 for no end. Raises AuthenticationFailed."""
        now, before = outcome.principal, None if self._identity is None else self._identity.principal
        if before is not None and now != before:
            message = (
                f"Cannot change principals during re-authentication from {before.kind}.{before.name}:"
                f" {now.kind}.{now.name}"
            )
            raise AuthenticationFailed(message, claimed=now.name)
        self._exchange, self._state = None, AuthenticationState.AUTHENTICATED
        self._identity = Identity(outcome.principal, self._connection.client_host, mechanism, outcome.is_token)
        lifetime_ms = self._shared.lifetime_ms(outcome, self._connection.listener, mechanism)
        self.closed()
        self._expiry = None if lifetime_ms is None else self._loop.call_later(lifetime_ms / 1000, self._expire)
        self._connection.authenticated(self._identity, self._shared.handle)
        return lifetime_ms or 0

    def _expire(self) -> None:
        self._state = AuthenticationState.EXPIRED
        self._connection.handle_by(self.gate)

    async def _fail(self, failure: AuthenticationFailed, mechanism: str, head: RequestHead | None, slot: Slot) -> None:
        """Answer a failure after a delay, and close the connection."""
        connection = self._connection
        self._state, self._exchange = AuthenticationState.FAILED, None
        self.closed()
        connection.handle_by(self.gate)
        _events.warning(
            "authentication.failed",
            client=connection.client_host,
            listener=connection.listener,
            mechanism=mechanism,
            user=failure.claimed[:USER_CHARS_SHOWN],
            reason=failure.detail,
        )
        self.note(failure.detail, mechanism, failure.claimed[:USER_CHARS_SHOWN])
        await asyncio.sleep(self._shared.delay_s)
        await self._shared.turns.turn()
        if head is None:
            slot.fill([])
        else:
            _answer(slot, head, refusal(ErrorCode.sasl_authentication_failed, failure.message))
        connection.finish()


def _answer(slot: Slot, head: RequestHead, response: SaslHandshakeResponse | SaslAuthenticateResponse) -> None:
    if response.error_code is not ErrorCode.none:
        slot.refused(int(response.error_code))
    slot.fill([*at_once(encoding(head.api_key, head.version, head.correlation_id, response))])
