"""Flow control of replication: a window of bytes in flight for each log directory of a follower. Pure.

Sent bytes count until the follower reports them as flushed. A hung disk of the follower uses up the window of its own
log directory, and replication to the other directories continues. The stream number contains the number of the
follower's log directory (`frames.directory_of`).

The bytes of the window are shared. Pushes in flight are limited for each kind: to replicas in sync, and to those that
catch up. A producer waits for the former, and not until bytes of the latter are flushed: a report is of the first bytes
in flight of one stream, and makes room for the pushes that these were in.
"""

ANSWERS_ON_THE_WAY_MAX = 2
"""Pushes in flight to replicas in sync, and as many to those that catch up."""
PUSH_BYTES = 1 << 20
"""Bytes of a push, all its parts together. Its last batch may exceed them."""
WINDOW_BYTES = 8 << 20
"""Bytes sent to one log directory of a follower and not yet reported as flushed."""


class ImpossibleCredit(Exception):
    """A report of more bytes than are in flight."""


class PushesInFlight:
    """How many pushes to replicas of one kind are in flight."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


class Push:
    """A push to replicas of one kind, with its bytes in flight."""

    __slots__ = ("of_kind", "size")

    def __init__(self, of_kind: PushesInFlight) -> None:
        self.of_kind, self.size = of_kind, 0


BytesInFlight = dict[Push, int]
"""Bytes in flight of a stream, or of several, by the pushes that they were in: the first ones first."""


class PushWindow:
    """Window of one log directory."""

    __slots__ = ("catching_up", "credit", "cut", "in_sync", "of_ended_streams", "push_bytes")

    def __init__(self) -> None:
        self.credit = WINDOW_BYTES
        self.push_bytes = PUSH_BYTES
        """Bytes that the next push to replicas in sync may have, or the next part of the last one."""
        self.cut: Push | None = None
        """The last push to replicas in sync, if another part of it is to be sent."""
        self.of_ended_streams: BytesInFlight = {}
        """The follower reports those that it discarded under no stream's number."""
        self.in_sync, self.catching_up = PushesInFlight(), PushesInFlight()

    def may_send(self) -> bool:
        """Return whether a push to replicas in sync, or its next part, may be sent.

        The last batch of a push may exceed the window.
        """
        return self.credit > 0 and (self.cut is not None or self.in_sync.count < ANSWERS_ON_THE_WAY_MAX)

    def may_catch_up(self) -> bool:
        """Return whether a push to replicas that catch up may be sent. Its last batch may exceed the window."""
        return self.credit > 0 and self.catching_up.count < ANSWERS_ON_THE_WAY_MAX

    def sent(self, push: Push, size: int, *, is_cut: bool = False) -> None:
        """Record that `size` bytes were sent: a push, or a part of it. The caller adds them to those of the streams.

        A push to replicas in sync that `is_cut` goes on while it has bytes left. All its parts count as one.
        """
        if not push.size:
            push.of_kind.count += 1
        push.size += size
        self.credit -= size
        if push.of_kind is self.in_sync:
            self.push_bytes -= size
            self.cut = push if is_cut and self.push_bytes > 0 else None
            if self.cut is None:
                self.push_bytes = PUSH_BYTES

    def reported(self, size: int, stream: BytesInFlight) -> None:
        """Record that `size` bytes are flushed, or were discarded: those in flight of a stream, then of ended ones.

        Raises ImpossibleCredit.
        """
        if size < 0:
            raise ImpossibleCredit(f"{size} bytes reported")
        if size and stream:
            size = self._take(size, stream)
        if size:
            size = self._take(size, self.of_ended_streams)
        if size:
            raise ImpossibleCredit(f"{size} bytes reported that are not in flight")

    def ended(self, stream: BytesInFlight) -> None:
        """Record that a stream has ended: its bytes in flight are reported later."""
        for push, size in stream.items():
            self.of_ended_streams[push] = self.of_ended_streams.get(push, 0) + size
        stream.clear()

    def _take(self, size: int, in_flight: BytesInFlight) -> int:
        """Remove the first bytes, at most `size`. Return how many are left of `size`."""
        for push, held in list(in_flight.items()):
            taken = size if size < held else held
            if taken < held:
                in_flight[push] = held - taken
            else:
                del in_flight[push]
            size -= taken
            self.credit += taken
            push.size -= taken
            if not push.size:
                push.of_kind.count -= 1
            if not size:
                break
        return size
