"""Client quotas at work: requests and connections are counted, and a client beyond its quota is throttled (KIP-219).

A throttled request is answered at once, with the time for which its connection is muted: the broker reads nothing from
it until then. The use is counted by this broker alone, and shared by all connections of a group (docs/adr/0044).
"""

import asyncio
import math
from collections.abc import Callable
from dataclasses import is_dataclass, replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from kio.schema.errors import ErrorCode

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.kafka.answer_queue import Slot
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.codec import RequestHead
from cordwood.cluster.kafka.request_measures import ThrottleMeasures
from cordwood.cluster.quotas.limiter import Limiter
from cordwood.cluster.quotas.limits import (
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    Limit,
    Quotas,
    address_limit,
    client_limit,
)
from cordwood.cluster.security.principal import THIS_BROKER, Identity
from cordwood.replication.frames import FIRST_KEY_BYTE
from cordwood.storage.steps import Steps, at_once

if TYPE_CHECKING:
    from cordwood.cluster.kafka.connection import Connection, Handle
    from cordwood.cluster.metadata.image import Image
    from cordwood.cluster.metadata.quorum import Quorum

EXEMPT = frozenset(
    {
        ApiKey.JOIN_GROUP,
        ApiKey.SYNC_GROUP,
        ApiKey.HEARTBEAT,
        ApiKey.LEAVE_GROUP,
        ApiKey.SASL_HANDSHAKE,
        ApiKey.SASL_AUTHENTICATE,
        ApiKey.WRITE_TXN_MARKERS,
    }
)
"""The APIs that no quota delays: members of groups stay alive, clients authenticate, and transactions end."""
REQUEST_THROTTLE_S_MAX = 1.0
"""The longest throttling for request_percentage, as in Kafka: one window of its quotas."""
RETURN_GAP_S, RETURN_SPREAD_S_MAX = 0.001, 1.0
"""Mean time between two consumers of a group in debt that fetch again, and the longest time that all of them take."""
GOLDEN_RATIO = (math.sqrt(5) - 1) / 2
CONNECTION_DELAY_S_MAX = 20.0
"""A new connection that would have to wait longer is closed."""
THROTTLE_MS_MAX = (1 << 31) - 1


def _found_by(key: str) -> Callable[[Quotas, str, str], Limit | None]:
    return lambda quotas, user, client_id: client_limit(quotas, key, user, client_id)


def _found_by_address(quotas: Quotas, address: str, _: str) -> Limit | None:
    return address_limit(quotas, CONNECTION_CREATION_RATE, address)


def _percentage(quotas: Quotas, user: str, client_id: str) -> Limit | None:
    """Return the limit of request_percentage in seconds of the event loop per second."""
    limit = client_limit(quotas, REQUEST_PERCENTAGE, user, client_id)
    return None if limit is None else limit._replace(rate=limit.rate / 100)


class ClientThrottle:
    """The quotas of one broker. Nothing calls it on the path of a request while `is_active` is False."""

    def __init__(self, measures: ThrottleMeasures | None = None) -> None:
        self.is_active = False
        """Whether there are quotas of users or client ids."""
        self.limits_addresses = False
        self.measures = measures or ThrottleMeasures(lambda: 0.0)
        self._now: Callable[[], float] = lambda: 0.0
        self._produced, self._fetched = Limiter(_found_by(PRODUCER_BYTE_RATE)), Limiter(_found_by(CONSUMER_BYTE_RATE))
        self._requests, self._mutations = Limiter(_percentage), Limiter(_found_by(CONTROLLER_MUTATION_RATE))
        self._connections = Limiter(_found_by_address)
        self._muted: set[Connection] = set()
        self._place = 0.0
        """Place of the last consumer in the spread (`_spread_s`), from 0 to 1."""

    def follow(self, quotas: Quotas) -> None:
        """Apply the quotas from here on. Connections that are muted by former ones are read again."""
        self._now = asyncio.get_running_loop().time
        self.limits_addresses = any(CONNECTION_CREATION_RATE in limits for limits in quotas.values())
        self.is_active = any(limits.keys() - {CONNECTION_CREATION_RATE} for limits in quotas.values())
        for limiter in (self._produced, self._fetched, self._requests, self._mutations, self._connections):
            limiter.follow(quotas)
        for connection in list(self._muted):
            connection.unmute()

    def follow_metadata(self, quorum: "Quorum") -> None:
        """Apply the quotas in the metadata, and every change of them."""

        def follow(old: "Image", new: "Image") -> None:
            if old.client_quotas is not new.client_quotas:
                self.follow(new.client_quotas)

        self.follow(quorum.image.client_quotas)
        quorum.subscribe(follow)

    def begin(self, head: RequestHead, slot: Slot) -> None:
        """Count a request, and set the throttle time that its response states."""
        identity = slot.connection.identity
        if head.api_key in EXEMPT or identity is THIS_BROKER:
            return
        user, client_id, now = identity.principal.name, head.client_id, self._now()
        debt_s = min(REQUEST_THROTTLE_S_MAX, self._requests.debt_s(user, client_id, now))
        self._note(REQUEST_PERCENTAGE, debt_s)
        if head.api_key == ApiKey.PRODUCE:
            produced_s = self._produced.charge(user, client_id, slot.size, now)
            self._note(PRODUCER_BYTE_RATE, produced_s)
            debt_s = max(debt_s, produced_s)
        slot.throttle_ms = _ms(debt_s)

    def end(self, head: RequestHead, slot: Slot, seconds: float) -> None:
        """Count the time of a request's first step, and mute its connection if it is throttled."""
        connection = slot.connection
        slots = connection.answers.slots
        self.took(head, connection.identity, seconds)
        if slots and slots[-1] is slot:
            self.mute(slot)
        elif head.api_key == ApiKey.PRODUCE and connection.is_open and connection.identity is not THIS_BROKER:
            # The request was put back, and will be handled and counted again.
            self._produced.charge(connection.identity.principal.name, head.client_id, -slot.size, self._now())

    def took(self, head: RequestHead, identity: Identity, seconds: float) -> None:
        """Count a step of a request on the event loop."""
        if head.api_key not in EXEMPT and identity is not THIS_BROKER:
            self._requests.charge(identity.principal.name, head.client_id, seconds, self._now())

    def run(self, head: RequestHead, slot: Slot, steps: Steps[None]) -> None:
        """Run a later step of a request, and count its time."""
        began = self.measures.clock()
        at_once(steps)
        self.took(head, slot.connection.identity, self.measures.clock() - began)

    def mute(self, slot: Slot) -> None:
        """Read no further request of a throttled client until its throttle time has passed."""
        if slot.throttle_ms:
            self._mute(slot.connection, slot.throttle_ms / 1000)

    def state_in(self, response: Any, slot: Slot, throttle_ms: int) -> Any:
        """Return a response with its throttle time, and mute the connection."""
        slot.throttle_ms = max(slot.throttle_ms, throttle_ms)
        if not slot.throttle_ms:
            return response
        self.mute(slot)
        if is_dataclass(response) and hasattr(response, "throttle_time"):
            return replace(response, throttle_time=timedelta(milliseconds=slot.throttle_ms))  # type: ignore[type-var]
        return response

    def fetch_bytes_max(self, identity: Identity, client_id: str, bytes_max: int) -> int:
        """Return the limit of a response: a fetch beyond what an idle group may have at once would be a long debt."""
        at_once = None if identity is THIS_BROKER else self._fetched.at_once(identity.principal.name, client_id)
        return bytes_max if at_once is None else max(1, min(bytes_max, int(at_once)))

    def refuses_data(self, head: RequestHead, slot: Slot) -> bool:
        """Return whether the group of a consumer is in debt: its fetch gets no data, and its connection is muted."""
        identity = slot.connection.identity
        if identity is THIS_BROKER:
            return False
        debt_s = self._fetched.debt_s(identity.principal.name, head.client_id, self._now())
        if debt_s <= 0:
            return False
        self._note(CONSUMER_BYTE_RATE, debt_s)
        slot.throttle_ms = max(slot.throttle_ms, _ms(debt_s + self._spread_s()))
        self.mute(slot)
        return True

    def _spread_s(self) -> float:
        """Return how long after the end of its group's debt a consumer fetches again: 0 if it is the only one.

        Consumers that all came back at once would hold up the requests of others, and all but one would be refused
        again. The golden ratio spreads them evenly, in another order each time.
        """
        self._place = (self._place + GOLDEN_RATIO) % 1
        return self._place * min(RETURN_SPREAD_S_MAX, RETURN_GAP_S * len(self._muted))

    def fetched(self, head: RequestHead, slot: Slot, size: int) -> None:
        """Count the bytes of a response to a consumer."""
        identity = slot.connection.identity
        if identity is not THIS_BROKER:
            self._fetched.charge(identity.principal.name, head.client_id, size, self._now())

    def mutate(self, identity: Identity, client_id: str, partitions: int, *, is_strict: bool) -> int:
        """Count created and deleted partitions. Return the throttle time in ms (KIP-599).

        A client whose version has the error code gets it in place of the change. Raises QuotaExceeded.
        """
        if identity is THIS_BROKER:
            return 0
        user, now = identity.principal.name, self._now()
        debt_s = self._mutations.debt_s(user, client_id, now)
        if debt_s > 0 and is_strict:
            self._note(CONTROLLER_MUTATION_RATE, debt_s)
            raise QuotaExceeded(_ms(debt_s))
        after_s = self._mutations.charge(user, client_id, partitions, now)
        if is_strict:
            return 0
        self._note(CONTROLLER_MUTATION_RATE, after_s)
        return _ms(after_s)

    def opened(self, connection: "Connection") -> bool:
        """Count a new connection. Return False if it is to be closed: its address opens far too many.

        A connection beyond the rate waits for its turn. A connection of a broker does not wait: its first frame
        identifies it.
        """
        host = connection.client_host
        debt_s = self._connections.debt_s(host, "", self._now())
        if debt_s > CONNECTION_DELAY_S_MAX:
            self._note(CONNECTION_CREATION_RATE, debt_s)
            return False
        debt_s = self._connections.charge(host, "", 1.0, self._now())
        self._note(CONNECTION_CREATION_RATE, debt_s)
        if debt_s > 0:
            connection.intercept(partial(self._delay_first, self._now() + debt_s))
        return True

    def _delay_first(
        self, until: float, connection: "Connection", frame: memoryview, slot: Slot, handle: "Handle"
    ) -> None:
        """Handle the first frame of a new connection when its turn comes."""
        left_s = until - self._now()
        if left_s > 0 and (connection.is_authenticating or frame[0] < FIRST_KEY_BYTE):
            connection.put_back(slot)
            self._mute(connection, left_s)
        else:
            handle(connection, frame, slot)

    def _mute(self, connection: "Connection", seconds: float) -> None:
        if connection.is_open and not connection.is_broker:
            self._muted.add(connection)
            self.measures.muted = len(self._muted)
            connection.mute(seconds, self._unmuted)

    def _unmuted(self, connection: "Connection") -> None:
        self._muted.discard(connection)
        self.measures.muted = len(self._muted)

    def _note(self, key: str, seconds: float) -> None:
        if seconds > 0:
            self.measures.add(key, seconds)


class QuotaExceeded(Refused):
    """A change of partitions beyond the client's controller_mutation_rate."""

    def __init__(self, throttle_ms: int) -> None:
        super().__init__(ErrorCode.throttling_quota_exceeded, "The throttling quota has been exceeded.")
        self.throttle_ms = throttle_ms


def _ms(seconds: float) -> int:
    return min(THROTTLE_MS_MAX, math.ceil(seconds * 1000))
