"""Broker lifecycle: registration, heartbeats, readiness and controlled shutdown."""

import asyncio
from collections.abc import Callable, Iterable
from uuid import UUID

import structlog
from kio.schema.errors import ErrorCode

from cordwood.cluster.config.settings import Settings
from cordwood.cluster.metadata.commands import NEVER_REGISTERED, BrokerId, Endpoint, RegisterBroker
from cordwood.cluster.metadata.features import FIRST_LEVEL, OF_FIRST_RELEASE, SUPPORTED
from cordwood.cluster.metadata.image import BrokerImage, CommandRefused, Image
from cordwood.cluster.metadata.quorum import Heartbeat, Quorum, QuorumUnavailable
from cordwood.replication.log_directory import LogDirectory

_events = structlog.get_logger("lifecycle")

_SECOND_MS = 1000


class Patience:
    """Time limit of a controlled shutdown."""

    def __init__(self, max_wait_s: float, now: float) -> None:
        self._ends_at, self._last_in_touch = now + max_wait_s, now

    def is_over(self, is_in_touch: bool, session_s: float, now: float) -> bool:
        """Return True if the time is up, or if there has been no controller for two sessions."""
        if is_in_touch:
            self._last_in_touch = now
        return now >= self._ends_at or now - self._last_in_touch > 2 * session_s


class Lifecycle:
    """One incarnation of this broker: `register`, `start`, `unfenced`, and `begin_shutdown` before `close`.

    `on_failure` is called once, with a sentence, if this incarnation was replaced or unregistered: the broker must
    stop.
    """

    def __init__(
        self, quorum: Quorum, settings: Settings, incarnation: UUID, on_failure: Callable[[str], None]
    ) -> None:
        self._quorum, self._loop = quorum, asyncio.get_running_loop()
        self._broker_id, self._incarnation = BrokerId(settings.node_id), incarnation
        self._rack, self._min_isr = settings.broker_rack, settings.min_insync_replicas
        self._interval_s = settings.broker_heartbeat_interval_ms / _SECOND_MS
        self._session_ms = settings.broker_session_timeout_ms
        self._on_failure = on_failure
        self._wants_shutdown = self._is_replaced = False
        self._timer: asyncio.TimerHandle | None = None
        self._changed = asyncio.Event()

    async def register(self, endpoints: tuple[Endpoint, ...], log_dir_ids: tuple[str, ...]) -> Image:
        """Register this incarnation, however long the quorum takes. Return an image that has it, fenced.

        Raises CommandRefused if another broker has registered with this id, or if this release does not support the
        cluster's metadata.version, and QuorumFailed if the metadata can no longer be written here.
        """
        known = self._quorum.image.brokers.get(self._broker_id)
        expected_epoch = NEVER_REGISTERED if known is None else known.epoch
        while True:
            level = self._quorum.image.metadata_version
            if why_not := SUPPORTED.why_not(self._broker_id, level):
                raise CommandRefused(ErrorCode.unsupported_version, f"This broker is too old: {why_not}.")
            command = RegisterBroker(
                self._broker_id,
                self._incarnation,
                endpoints,
                self._rack,
                log_dir_ids,
                expected_epoch,
                self._min_isr,
                OF_FIRST_RELEASE if level == FIRST_LEVEL else SUPPORTED,
            )
            try:
                return await self._quorum.propose(command)
            except QuorumUnavailable as unavailable:
                _events.warning("registration.delayed", broker=self._broker_id, reason=str(unavailable))
                await asyncio.sleep(self._interval_s)
            except CommandRefused:
                if level == self._quorum.image.metadata_version:
                    raise
                # Another level was finalized at this moment.

    def start(self) -> None:
        """Begin heartbeats. The broker has recovered its logs and has its assignments."""
        self._quorum.subscribe(self._follow)
        self._see_to_identity()
        self._beat()

    def close(self) -> None:
        """End the heartbeats."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def unfenced(self) -> None:
        """Return once this broker may lead."""
        await self._until(lambda: self._me is not None and not self._me.is_fenced)

    async def begin_shutdown(self, max_wait_s: float) -> None:
        """Hand over leadership. Return once no other live broker could lead a partition of this one.

        Live replicas that are not in sync yet are waited for. Also returns after `max_wait_s`, and without a controller
        for two sessions.
        """
        self._wants_shutdown = True
        self._beat()
        patience = Patience(max_wait_s, self._loop.time())
        while not self._is_dispensable():
            if patience.is_over(self._is_in_touch(), self._session_ms / _SECOND_MS, self._loop.time()):
                _events.warning("shutdown.abrupt", broker=self._broker_id, in_touch=self._is_in_touch())
                return
            await asyncio.sleep(self._interval_s / 4)

    @property
    def is_registered(self) -> bool:
        """Whether this incarnation is in the image, which therefore has all that was committed before this start."""
        return self._me is not None

    def why_not_ready(self) -> str | None:
        """Return a sentence why this broker is not ready; None if it is."""
        me = self._me
        if me is None:
            return (
                "This broker has not joined its cluster: it is still starting, or no majority of the voters is running."
            )
        if me.is_fenced:
            return "This broker is fenced: it is still starting, or its heartbeats do not reach the controller."
        if me.is_shutting_down or self._wants_shutdown:
            return "This broker is shutting down."
        return None if self._is_in_touch() else "This broker has lost contact with the controller."

    @property
    def _me(self) -> BrokerImage | None:
        """The registration of this incarnation in the image; None without one."""
        known = self._quorum.image.brokers.get(self._broker_id)
        return known if known is not None and known.incarnation == self._incarnation else None

    def _beat(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(self._interval_s, self._beat)
        me = self._me
        if me is not None:
            index = self._quorum.image.index
            self._quorum.send_heartbeat(
                Heartbeat(self._broker_id, self._incarnation, me.epoch, index, self._wants_shutdown)
            )

    def _follow(self, old: Image, new: Image) -> None:
        self._changed.set()
        if old.brokers is not new.brokers:
            self._see_to_identity()

    def _see_to_identity(self) -> None:
        if self._me is not None or self._is_replaced:
            return
        self._is_replaced = True
        self.close()
        if self._broker_id in self._quorum.image.brokers:
            reason = f"another broker has registered with node.id {self._broker_id}: give each broker a unique node.id."
        else:
            reason = f"broker {self._broker_id} was unregistered: restart it to register it again."
        self._on_failure(reason)

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._changed.clear()
            await self._changed.wait()

    def _is_dispensable(self) -> bool:
        """Return True if the controller has the shutdown and no live replica could lead a partition led here."""
        me, image = self._me, self._quorum.image
        if me is None or me.is_fenced:
            return True
        return me.is_shutting_down and not any(
            partition.leader == self._broker_id
            and any(image.is_alive(other) for other in partition.replicas if other != self._broker_id)
            for topic in image.topics_by_id.values()
            for partition in topic.partitions
        )

    def _is_in_touch(self) -> bool:
        status = self._quorum.status()
        if status.leader_id == self._broker_id:
            return self._quorum.is_leader
        return any(
            voter.broker_id == status.leader_id
            and voter.is_connected
            and voter.last_heard_ms_ago is not None
            and voter.last_heard_ms_ago < self._session_ms
            for voter in status.voters
        )


def why_not_writable(directories: Iterable[LogDirectory], headroom_bytes: int) -> str | None:
    """Return a sentence why no log directory takes writes, and what to do; None if at least one does.

    With several disks a broker uses those that work; the metrics report the others. `headroom_bytes` is
    log.dir.headroom.bytes. The free space comes from the file systems, which is quick.
    """
    reasons = [_why_not(directory, headroom_bytes) for directory in directories]
    return None if None in reasons else reasons[0]


def _why_not(directory: LogDirectory, headroom_bytes: int) -> str | None:
    if directory.error is not None:
        return (
            f"The log directory {directory.path} has failed ({directory.error}), and requests for its partitions"
            " are refused: replace the disk and restart this broker."
        )
    free_bytes = directory.free_bytes()
    if free_bytes is None or (free_bytes >= headroom_bytes and not directory.refuses_with(free_bytes)):
        return None
    return (
        f"The log directory {directory.path} has no room for more records ({free_bytes} bytes are free,"
        f" log.dir.headroom.bytes is {headroom_bytes}): lower retention.bytes, delete a topic, or enlarge"
        " its file system."
    )
