"""Who was heard of when, and so who is silent. Pure: it is told the time, in seconds of one clock that never goes back.

Every voter keeps this, whether it is the controller or not: a new controller knows at once who has been silent.
"""

from dataclasses import dataclass

from cordwood.cluster.metadata.commands import BrokerId
from cordwood.cluster.metadata.image import BrokerImage, Image
from cordwood.cluster.metadata.quorum import Heartbeat
from cordwood.cluster.pause_detector import PauseDetector


@dataclass(frozen=True, slots=True)
class _Sign:
    """The last that was heard of a broker. Without a heartbeat: since when there is something to be heard."""

    at_s: float
    heartbeat: Heartbeat | None


class Liveness:
    """The brokers' last signs of life.

    A killed process does not only fall silent: its connection ends, and its host refuses others. Both together are
    silence too. A connection that ends by itself says nothing: networks reset connections, and brokers dial again.

    `look` is to be called several times a session: a longer gap means that this process stood still, heard nobody, and
    learned nothing about the others. Their sessions then go on where they were. And who finds more brokers silent than
    it hears of may be cut off itself: it blames nobody for one session more.
    """

    def __init__(self, session_s: float) -> None:
        self._session_s = session_s
        self._signs: dict[BrokerId, _Sign] = {}
        self._hung_up: set[BrokerId] = set()
        self._gone: set[BrokerId] = set()
        self._pause_detector = PauseDetector(session_s / 2)
        self._deaf_since_s: float | None = None

    def heard(self, heartbeat: Heartbeat, now_s: float) -> None:
        """A broker says that it is alive."""
        self._signs[heartbeat.broker_id] = _Sign(now_s, heartbeat)
        self._hung_up.discard(heartbeat.broker_id)
        self._gone.discard(heartbeat.broker_id)

    def hung_up(self, broker_id: BrokerId) -> None:
        """The broker's connection with this voter has ended."""
        self._hung_up.add(broker_id)

    def refused(self, broker_id: BrokerId) -> None:
        """The broker's host keeps refusing connections. Counts where nothing was heard since it hung up."""
        if broker_id in self._hung_up:
            self._gone.add(broker_id)

    def look(self, image: Image, now_s: float) -> None:
        """Time has passed. Brokers that are new in the image have their session from now on."""
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
        """This voter has become the controller. If it was cut off before, the others may only now begin to reach it."""
        self._deaf_since_s = None
        self.look(image, now_s)

    def is_silent(self, broker: BrokerImage, now_s: float) -> bool:
        """Whether nothing has been heard of the broker for a session, and that is the broker's fault."""
        is_deaf = self._deaf_since_s is not None and now_s - self._deaf_since_s < self._session_s
        return broker.id in self._signs and self._is_over(broker.id, now_s) and not is_deaf

    def heartbeat(self, broker: BrokerImage, now_s: float) -> Heartbeat | None:
        """What the registered incarnation of the broker said within the last session; None if it said nothing."""
        sign = self._signs.get(broker.id)
        if sign is None or sign.heartbeat is None or self._is_over(broker.id, now_s):
            return None
        said = sign.heartbeat
        return said if (said.incarnation, said.broker_epoch) == (broker.incarnation, broker.epoch) else None

    def _is_over(self, broker_id: BrokerId, now_s: float) -> bool:
        return broker_id in self._gone or now_s - self._signs[broker_id].at_s >= self._session_s
