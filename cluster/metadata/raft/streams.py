"""The streams of committed entries that a voter sends to its observers."""

from dataclasses import dataclass

from cordwood.cluster.metadata.commands import BrokerId
from cordwood.cluster.metadata.raft.election import Host
from cordwood.cluster.metadata.raft.messages import Committed, Row
from cordwood.cluster.metadata.raft.node import APPEND_BYTES_MAX, RaftNode

STATUS_INTERVAL_S = 0.5
"""The interval at which an idle observer is sent leader and term."""


@dataclass(slots=True)
class _Stream:
    next_index: int
    reported: tuple[BrokerId | None, int] = (None, -1)
    reported_at_s: float = float("-inf")


class ObserverStreams:
    """One stream for each observer that requested it."""

    def __init__(self, node: RaftNode, host: Host) -> None:
        self._node, self._host = node, host
        self._streams: dict[BrokerId, _Stream] = {}

    def follow(self, observer: BrokerId, index: int) -> None:
        """Begin a stream for an observer that has applied all entries up to `index`, from this voter or another."""
        self._streams[observer] = _Stream(index + 1)

    def end(self, observer: BrokerId) -> None:
        self._streams.pop(observer, None)

    def next_index(self, observer: BrokerId) -> int | None:
        stream = self._streams.get(observer)
        return None if stream is None else stream.next_index

    def pump(self) -> None:
        """Send the entries and statuses that are due."""
        for observer, stream in self._streams.items():
            while self._send(observer, stream):
                pass

    def _send(self, observer: BrokerId, stream: _Stream) -> bool:
        """Send at most one message. Return whether there may be more to send."""
        node, applied = self._node, self._node.applied_index
        if stream.next_index <= node.log.base_index:
            image = self._host.packed_image()
            if image is not None and self._host.send(observer, image):
                stream.next_index = image.index + 1
                return True
            return False
        entries: tuple[Row, ...] = ()
        if stream.next_index <= applied:
            entries = node.log.between(stream.next_index - 1, applied, APPEND_BYTES_MAX)
        now_s, status = self._host.now_s(), (node.leader, node.term)
        if not entries and status == stream.reported and now_s - stream.reported_at_s < STATUS_INTERVAL_S:
            return False
        if not self._host.send(observer, Committed(*status, node.commit_index, entries)):
            return False
        stream.reported, stream.reported_at_s = status, now_s
        stream.next_index += len(entries)
        return stream.next_index <= applied
