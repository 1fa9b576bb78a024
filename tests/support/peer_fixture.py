"""The two ends of a replication connection, each driven by its frames: FollowerConnection and LeaderConnection."""

from collections.abc import Callable
from uuid import UUID

from replica_fixture import ME, NOW_MS, TOPIC_ID, ReplicaFixture, run_here

from cordwood.replication import frames
from cordwood.replication.assignment import Assignment
from cordwood.replication.channel import Channel, Chunk, Received
from cordwood.replication.follower_connection import FollowerLimits
from cordwood.replication.follower_connections import FollowerConnections
from cordwood.replication.frames import FollowRequest, MalformedFrame, Open, PushKind, PushRow
from cordwood.replication.leader_connection import LeaderConnection
from cordwood.replication.partition import Partition, TopicIdPartition
from cordwood.replication.tasks import RunBlocking
from cordwood.replication.throttle import Charge
from cordwood.replication.truncation import Truncations
from cordwood.storage.config import LogConfig
from cordwood.storage.steps import Steps, at_once

FOLLOWER, LEADER = 2, 3
HELLO = Open(FOLLOWER, UUID(int=9), 1, "a cluster")
CATCHUP_BYTES_PER_SECOND = 1 << 40


class RecordingChannel:
    """A connection whose other end is the test."""

    def __init__(self) -> None:
        self.is_open = True
        self.on_closed: Callable[[], None] | None = None
        self.pushed: list[bytes] = []

    def push(self, chunks: list[Chunk]) -> None:
        self.pushed.append(b"".join(map(_bytes_of, chunks)))

    def close(self, _reason: str | None = None) -> None:
        if self.is_open:
            self.is_open = False
            if self.on_closed is not None:
                self.on_closed()

    def take(self) -> list[memoryview]:
        """Return the frames sent since the last call, without their length prefix."""
        pushed, self.pushed = self.pushed, []
        return [memoryview(frame)[4:] for frame in pushed]


def _bytes_of(chunk: Chunk) -> bytes:
    if isinstance(chunk, bytes):
        return chunk
    pieces = []
    while chunk.size:
        pieces.append(bytes(chunk.next_piece()))
    return b"".join(pieces)


class LeaderFixture(ReplicaFixture):
    """A leader with one follower's connection. The test sends the follower's frames."""

    def __init__(
        self, config: LogConfig | None = None, catchup_bytes_per_second: int = CATCHUP_BYTES_PER_SECOND
    ) -> None:
        super().__init__(config)
        limits = FollowerLimits(catchup_bytes_per_second)
        self.throttle = limits.throttle
        self.follower_connections = FollowerConnections(self.replicas, self.end_of_tick, limits, lambda _: None)
        self.channel = RecordingChannel()
        self.send(frames.encode_open(HELLO))

    def lead(self, index: int, *, in_sync: bool = True, charge: Charge | None = None) -> Partition:
        """Lead a partition. With `charge` the follower's replica is being added."""
        partition = self.partition(index)
        isr = frozenset({ME, FOLLOWER} if in_sync else {ME})
        charges = {} if charge is None else {FOLLOWER: charge}
        partition.assigned(Assignment(ME, 1, 1, (ME, FOLLOWER), isr, 1, charges=charges))
        return partition

    def send(self, frame: bytes) -> None:
        """Deliver a frame from the follower. A malformed frame ends the connection, and the follower connects again."""
        try:
            steps = self.follower_connections.handle(self.channel, memoryview(frame)[4:])
            if steps is not None:
                at_once(steps)
        except MalformedFrame:
            self.connect_again()

    def connect_again(self) -> None:
        """End the follower's connection, and open the next one."""
        self.channel.close()
        self.channel = RecordingChannel()
        self.send(frames.encode_open(HELLO))

    def follow(self, index: int, end: int = 0, *, stream: int | None = None) -> None:
        """Send FOLLOW from the log end `end`. The stream number is the partition's unless it is given."""
        epoch = 1 if end else -1
        row = FollowRequest(index if stream is None else stream, TOPIC_ID, index, 1, end, epoch, end)
        self.send(frames.encode_follow([row]))

    def rows(self) -> list[PushRow]:
        """Return the push rows sent to the follower since the last call."""
        return [row for frame in self.channel.take() for row, _ in frames.decode_push(frame)]


class FollowerFixture(ReplicaFixture):
    """A follower broker. The test plays the leader."""

    def __init__(self, run_blocking: RunBlocking = run_here, directories: int = 1) -> None:
        super().__init__(directories=directories, run_blocking=run_blocking)
        self.dialled: list[RecordingChannel] = []
        self._received: Received | None = None
        address, hello = ("leader", 1), Open(ME, UUID(int=9), 1, "a cluster")
        self.truncations = Truncations()
        self.leader_connection = LeaderConnection(
            LEADER, lambda _: address, lambda: hello, self._dial, self.end_of_tick, lambda: NOW_MS, self.truncations
        )

    @property
    def channel(self) -> RecordingChannel:
        return self.dialled[-1]

    def follow(self, index: int) -> Partition:
        self.replicas.open(TopicIdPartition("t", index, TOPIC_ID), self.config, NOW_MS)
        partition = self.replicas.get("t", index)
        assert partition is not None
        assert partition.assigned(Assignment(LEADER, 1, 1, (ME, LEADER), frozenset({ME, LEADER}), 1))
        self.leader_connection.follow(partition)
        return partition

    def asked(self) -> list[FollowRequest]:
        """Return the FOLLOW rows sent to the leader since the last call."""
        taken = [frame for frame in self.channel.take() if frames.key_of(frame) is frames.FrameKey.FOLLOW]
        return [row for frame in taken for row in frames.decode_follow(frame)]

    def answer(self, *rows: PushRow, data: bytes = b"") -> None:
        """Deliver a PUSH from the leader. A malformed frame ends the connection."""
        try:
            steps = self.begin_answer(*rows, data=data)
            if steps is not None:
                at_once(steps)
        except MalformedFrame:
            self.channel.close()

    def begin_answer(self, *rows: PushRow, data: bytes = b"") -> Steps[None] | None:
        """Deliver a PUSH from the leader, and return the steps that handle the rest of a large one."""
        assert self._received is not None, "the leader is connected"
        return self._received(memoryview(frames.encode_push(list(rows), len(data)) + data)[4:])

    def refuse(self, *rows: FollowRequest) -> None:
        self.answer(*(PushRow(row.stream, PushKind.REFUSED, 0, 0) for row in rows))

    async def _dial(self, _host: str, _port: int, received: Received) -> Channel:
        self._received = received
        self.dialled.append(RecordingChannel())
        return self.dialled[-1]
