"""The request dispatcher: API lookup, request decoding, handler call, response encoding and error handling."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any, Protocol

import structlog

from cordwood.cluster.kafka import registry
from cordwood.cluster.kafka.answer_memory import AnswerMemory
from cordwood.cluster.kafka.answer_queue import Slot
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.audited import ACTS, events_of
from cordwood.cluster.kafka.call import Call, Services, Work
from cordwood.cluster.kafka.codec import (
    RequestHead,
    decoding,
    encoding,
    is_flexible,
    read_head,
    upgrade_request,
)
from cordwood.cluster.kafka.connection import SASL_APIS, Connection
from cordwood.cluster.kafka.frame_steps import handle_rest
from cordwood.cluster.kafka.handlers import api_versions
from cordwood.cluster.kafka.message_writer import Answer, AnswerTooLarge
from cordwood.cluster.kafka.on_behalf import decode_on_behalf, is_on_behalf
from cordwood.cluster.kafka.request_measures import Held, Measured, RequestMeasures
from cordwood.cluster.kafka.wire import Malformed, decoded_bytes
from cordwood.cluster.security.authorizer import acts_as_broker
from cordwood.replication.follower_connections import FollowerConnections
from cordwood.replication.frames import FIRST_KEY_BYTE, MalformedFrame
from cordwood.replication.tasks import Tasks
from cordwood.storage.steps import Steps

CLIENT_ID_CHARS_LOGGED = 100

_events = structlog.get_logger("request")


@dataclass(frozen=True, slots=True)
class Api:
    """One API, as declared by its handler module."""

    key: ApiKey
    handle: Callable[[Any, Call], Awaitable[Any]]
    upgrade_request: Callable[[Any, int], Any] | None
    downgrade_response: Callable[[Any, int], Any] | None
    items_max: int

    @classmethod
    def of(cls, module: ModuleType) -> "Api":
        upgrade, downgrade = getattr(module, "upgrade_request", None), getattr(module, "downgrade_response", None)
        return cls(module.KEY, module.handle, upgrade, downgrade, registry.items_max_of(module))

    def decoding(self, head: RequestHead, frame: memoryview) -> Steps[Any]:
        """Decode a request and upgrade it to the newest version. Raises Malformed."""
        request = yield from decoding(self.key, head.version, frame, head.body, self.items_max)
        newest = self.key.versions[-1]
        if head.version == newest:
            return request
        if self.upgrade_request is not None:
            return self.upgrade_request(request, head.version)
        return upgrade_request(self.key, head.version, newest)(request)

    def encoding(self, head: RequestHead, response: Any, answer: Answer) -> Steps[list[bytes]]:
        """Encode a response in the request's version, as chunks of a frame. Raises AnswerTooLarge."""
        if self.downgrade_response is not None and head.version != self.key.versions[-1]:
            response = self.downgrade_response(response, head.version)
        return encoding(self.key, head.version, head.correlation_id, response, answer)


class FastPathHandler(Protocol):
    """The handler of an API whose requests are decoded, handled and answered without a task: Produce and Fetch."""

    def handle(self, head: RequestHead, frame: memoryview, slot: Slot) -> Work | None:
        """Handle a request in the connection's callback, or refuse its version. `slot` is filled then or later.

        Returns the remaining work of a large request, to be run in a task. Raises Malformed.
        """

    async def close(self) -> None:
        """Cancel the requests that are still handled."""


class Dispatcher:
    """The request handler of all connections of a broker."""

    def __init__(
        self,
        services: Services,
        fast_path: Mapping[int, FastPathHandler],
        follower_connections: FollowerConnections,
        measures: RequestMeasures,
        answers: AnswerMemory,
    ) -> None:
        self._answers = answers
        self._services, self._follower_connections, self._measures = services, follower_connections, measures
        self._throttle = services.throttle
        self._fast_path = fast_path
        self._served: dict[int, ApiKey] = {key: key for key in ApiKey if key not in fast_path}
        self._apis = {key: Api.of(registry.load(key)) for key in self._served.values() if registry.is_loaded(key)}
        """Those that are imported; `_load` adds the others."""
        self._tasks = Tasks()

    def handle(self, connection: Connection, frame: memoryview, slot: Slot) -> None:
        """Handle one frame. Produce and Fetch run in this call as far as possible; other APIs run in a task."""
        head: RequestHead | None = None
        try:
            if frame[0] >= FIRST_KEY_BYTE:
                self._handle_broker(connection, frame)
                return
            head = read_head(frame, is_flexible)
            slot.began = self._measures.clock()
            slot.api = self._measures.by_api.get(head.api_key)
            if self._throttle.is_active:
                self._throttle.begin(head, slot)
            if head.api_key in self._fast_path:
                rest = self._fast_path[head.api_key].handle(head, frame, slot)
                if rest is not None:
                    self._start(rest, head, connection)
            else:
                self._dispatch(head, frame, connection, slot)
            held_s = self._measures.clock() - slot.began
            if held_s > self._measures.longest_held_s:
                self._note_held(held_s, head, connection)
            if self._throttle.is_active:
                self._throttle.end(head, slot, held_s)
        except (Malformed, MalformedFrame) as malformed:
            self._malformed(connection, head, malformed)

    def _handle_broker(self, connection: Connection, frame: memoryview) -> None:
        """Handle a frame that only brokers send. A follower proves its rights with its first one."""
        connection.answers.withdraw()
        if connection.is_broker:
            self._follow(connection, frame)
        elif not acts_as_broker(self._services.authorizer, connection.identity):
            connection.close(f"{connection.identity.principal} is no broker: it may not do CLUSTER_ACTION")
        elif is_on_behalf(frame):
            connection.act_for(decode_on_behalf(frame))
        else:
            self._follow(connection, frame)
            connection.is_broker = connection.is_open

    def _follow(self, connection: Connection, frame: memoryview) -> None:
        """Handle a frame of a follower: one of many rows in steps, before the connection's next frame."""
        steps = self._follower_connections.handle(connection, frame)
        if steps is not None:
            handle_rest(steps, connection, self._tasks, self._malformed_frame)

    async def close(self) -> None:
        await self._tasks.close()
        for handler in self._fast_path.values():
            await handler.close()

    def _note_held(self, seconds: float, head: RequestHead, connection: Connection) -> None:
        name = ApiKey(head.api_key).name if head.api_key in self._measures.by_api else str(head.api_key)
        client_id = head.client_id[:CLIENT_ID_CHARS_LOGGED]
        self._measures.note_held(Held(seconds, name, connection.client_host, client_id, head.correlation_id))

    def _malformed(self, connection: Connection, head: RequestHead | None, malformed: Exception) -> None:
        self._measures.malformed += 1
        connection.close(f"a malformed request{_origin(head)}: {malformed}")

    def _malformed_frame(self, connection: Connection, malformed: MalformedFrame) -> None:
        self._malformed(connection, None, malformed)

    def _dispatch(self, head: RequestHead, frame: memoryview, connection: Connection, slot: Slot) -> None:
        key = self._served.get(head.api_key)
        if head.api_key == ApiKey.API_VERSIONS and head.version not in api_versions.KEY.versions:
            slot.fill([api_versions.unsupported(head.correlation_id, self._services.served_apis)])
            return
        if key is None or head.version not in key.versions:
            raise Malformed(f"API {head.api_key} in version {head.version}, which is not supported")
        if connection.authenticator is not None and head.api_key in SASL_APIS:
            connection.authenticator.handle(head, frame, slot)
            return
        if not slot.reserve(decoded_bytes(slot.size), alone=True):
            # As in Kafka, a connection's next request begins after the previous one has ended: a client that pipelines
            # requests shares the broker fairly, sees its own effects in order, and has one response in memory.
            return
        call = Call(
            self._services,
            head.version,
            head.client_id,
            connection.client_host,
            connection.listener,
            connection.number,
            connection.identity,
            connection.software,
        )
        self._start(partial(self._answer, key, head, connection.keep(frame), call, slot), head, connection)

    async def _answer(self, key: ApiKey, head: RequestHead, frame: memoryview, call: Call, slot: Slot) -> None:
        turns = self._services.turns
        try:
            api = self._apis.get(key) or await self._load(key)
            request = await turns.run(api.decoding(head, frame))
            if head.api_key == ApiKey.API_VERSIONS and (software := api_versions.software_of(request, head.version)):
                slot.connection.software = software
            response = await api.handle(request, call)
            if head.api_key in ACTS:
                async for event in turns.each(events_of(ApiKey(head.api_key), request, response, call.identity)):
                    if event is not None:
                        self._services.audit.note(event)
            if code := getattr(response, "error_code", None):
                slot.refused(int(code))
            if self._throttle.is_active:
                response = self._throttle.state_in(response, slot, call.throttle_ms)
            slot.fill([*await self._answers.write(slot, partial(api.encoding, head, response), turns)])
        finally:
            # The request may refer to the frame until it is answered (`LazyItems`).
            slot.connection.thaw(shrinks=True)

    async def _load(self, key: ApiKey) -> Api:
        """Return an API whose handler is imported in a thread, if `imports.py` has not done so yet."""
        api = self._apis[key] = Api.of(await self._services.run_blocking(partial(registry.load, key)))
        return api

    def _start(self, work: Work, head: RequestHead, connection: Connection) -> None:
        """Handle a request in a task. If the task fails, its connection is closed."""
        self._tasks.spawn(self._guarded(work, head, connection))

    async def _guarded(self, work: Work, head: RequestHead, connection: Connection) -> None:
        def held(seconds: float) -> None:
            if seconds > self._measures.longest_held_s:
                self._note_held(seconds, head, connection)
            if self._throttle.is_active:
                self._throttle.took(head, connection.identity, seconds)

        try:
            await Measured(work(), self._measures.clock, held)
        except Malformed as malformed:
            self._malformed(connection, head, malformed)
        except AnswerTooLarge as error:
            connection.close(f"{ApiKey(head.api_key).name}{_origin(head)} has {error}")
        except Exception as error:
            _events.exception(
                "request.failed",
                api=ApiKey(head.api_key).name,
                version=head.version,
                client=connection.client_host,
                client_id=head.client_id[:CLIENT_ID_CHARS_LOGGED],
                request=head.correlation_id,
            )
            connection.close(f"{ApiKey(head.api_key).name} failed: {error!r}")


def _origin(head: RequestHead | None) -> str:
    """Return the correlation id and the client id for a log line; empty if the request header is unreadable."""
    return "" if head is None else f" {head.correlation_id} of client {head.client_id[:CLIENT_ID_CHARS_LOGGED]!r}"
