"""Broker liveness: session timeouts from heartbeats and from closed or refused connections.

Pure: the caller passes the time, in seconds of one monotonic clock. Every voter keeps this state, so that a new active
controller knows immediately which sessions have timed out.
"""

from dataclasses import dataclass

from cordwood.cluster.metadata.commands import BrokerId
from cordwood.cluster.metadata.image import BrokerImage, Image
from cordwood.cluster.metadata.pause_detector import PauseDetector
from cordwood.cluster.metadata.quorum import Heartbeat


@dataclass(frozen=True, slots=True)
class _Sign:
    """The last heartbeat of a broker. None and the time of the first look, if there was no heartbeat."""

    at_s: float
    heartbeat: Heartbeat | None


class Liveness:
    """The last heartbeat of each broker.

    The connection of a killed process ends, and its host refuses new ones. Both together end the session immediately. A
    connection that ends alone means nothing: networks reset connections, and brokers reconnect.

    `look` has to be called several times per session timeout. A longer gap means that this process was paused and
    received nothing; all sessions are then extended by the pause. A voter with more timed-out brokers in service than
    live ones may be cut off itself: it reports no broker as silent for one more session timeout.
    """

    def __init__(self, session_s: float) -> None:
        self._session_s = session_s
        self._signs: dict[BrokerId, _Sign] = {}
        self._hung_up: set[BrokerId] = set()
        self._gone: set[BrokerId] = set()
        self._pause_detector = PauseDetector(session_s / 2)
        self._deaf_since_s: float | None = None

    def heard(self, heartbeat: Heartbeat, now_s: float) -> None:
        """Record a broker's heartbeat."""
        self._signs[heartbeat.broker_id] = _Sign(now_s, heartbeat)
        self._hung_up.discard(heartbeat.broker_id)
        self._gone.discard(heartbeat.broker_id)

    def hung_up(self, broker_id: BrokerId) -> None:
        """Record that the broker's connection with this voter has ended."""
        self._hung_up.add(broker_id)

    def refused(self, broker_id: BrokerId) -> None:
        """Record that the broker's host refuses connections. Counts only after `hung_up`, with no heartbeat since."""
        if broker_id in self._hung_up:
            self._gone.add(broker_id)

    def look(self, image: Image, now_s: float) -> None:
        """Advance the time. The session of a broker that is new in the image begins now."""
        still_s = self._pause_detector.look(now_s)
        for broker_id, sign in self._signs.items() if still_s else ():
            self._signs[broker_id] = _Sign(min(sign.at_s + still_s, now_s), sign.heartbeat)
        for broker_id in image.brokers:
            self._signs.setdefault(broker_id, _Sign(now_s, None))
        silent = {broker_id for broker_id in self._signs if self._is_over(broker_id, now_s)}
        for broker_id in silent - image.brokers.keys():
            del self._signs[broker_id]
            self._hung_up.discard(broker_id)
            self._gone.discard(broker_id)
        in_service = {broker_id for broker_id in silent if image.is_in_service(broker_id)}
        if len(in_service) <= len(self._signs.keys() - silent):
            self._deaf_since_s = None
        elif self._deaf_since_s is None:
            self._deaf_since_s = now_s

    def took_over(self, image: Image, now_s: float) -> None:
        """Become the active controller. After an isolation of this voter, the other brokers may only now reach it."""
        self._deaf_since_s = None
        self.look(image, now_s)

    def is_silent(self, broker: BrokerImage, now_s: float) -> bool:
        """Return whether the broker's session timed out while this voter was not cut off itself."""
        is_deaf = self._deaf_since_s is not None and now_s - self._deaf_since_s < self._session_s
        return broker.id in self._signs and self._is_over(broker.id, now_s) and not is_deaf

    def heartbeat(self, broker: BrokerImage, now_s: float) -> Heartbeat | None:
        """Return the last heartbeat of the broker's registered incarnation; None if there is none in this session."""
        sign = self._signs.get(broker.id)
        if sign is None or sign.heartbeat is None or self._is_over(broker.id, now_s):
            return None
        said = sign.heartbeat
        return said if (said.incarnation, said.broker_epoch) == (broker.incarnation, broker.epoch) else None

    def _is_over(self, broker_id: BrokerId, now_s: float) -> bool:
        return broker_id in self._gone or now_s - self._signs[broker_id].at_s >= self._session_s
