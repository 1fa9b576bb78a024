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


class Push:
    """A push, with its bytes in flight."""

    __slots__ = ("size",)

    def __init__(self) -> None:
        self.size = 0


class BytesInFlight(dict[Push, int]):
    """Bytes in flight of a stream, or of several, by the pushes that they were in."""

    __slots__ = ()

    def add(self, push: Push, size: int) -> None:
        self[push] = self.get(push, 0) + size

    def take(self, most: int) -> tuple[Push, int]:
        """Remove and return the first bytes, at most so many, which one push had."""
        push = next(iter(self))
        left = self[push] - most
        if left > 0:
            self[push] = left
            return push, most
        return push, self.pop(push)


class PushWindow:
    """Window of one log directory."""

    __slots__ = ("_catching_up", "_cut", "_in_sync", "credit", "of_ended_streams", "push_bytes")

    def __init__(self) -> None:
        self.credit = WINDOW_BYTES
        self.push_bytes = PUSH_BYTES
        """Bytes that the next push to replicas in sync may have, or the next part of the last one."""
        self.of_ended_streams = BytesInFlight()
        """The follower reports those that it discarded under no stream's number."""
        self._in_sync: set[Push] = set()
        self._catching_up: set[Push] = set()
        self._cut: Push | None = None
        """The last push to replicas in sync, if another part of it is to be sent."""

    def may_send(self) -> bool:
        """Return whether a push to replicas in sync, or its next part, may be sent.

        The last batch of a push may exceed the window.
        """
        return self.credit > 0 and (self._cut is not None or len(self._in_sync) < ANSWERS_ON_THE_WAY_MAX)

    def may_catch_up(self) -> bool:
        """Return whether a push to replicas that catch up may be sent. Its last batch may exceed the window."""
        return self.credit > 0 and len(self._catching_up) < ANSWERS_ON_THE_WAY_MAX

    def sent(self, size: int, *, is_cut: bool = False) -> Push:
        """Record that `size` bytes were sent to replicas in sync: a push, or a part. Return the push.

        A push that `is_cut` goes on while it has bytes left. All its parts count as one push in flight. The caller adds
        the bytes of each stream to those in flight.
        """
        push = self._send(self._cut or Push(), size, self._in_sync)
        self.push_bytes -= size
        self._cut = push if is_cut and self.push_bytes > 0 else None
        if self._cut is None:
            self.push_bytes = PUSH_BYTES
        return push

    def sent_to_catch_up(self, size: int) -> Push:
        """Record that a push of `size` bytes was sent to replicas that catch up, as `sent`."""
        return self._send(Push(), size, self._catching_up)

    def reported(self, size: int, stream: BytesInFlight) -> None:
        """Record that `size` bytes are flushed, or were discarded: those in flight of a stream, then of ended ones.

        Raises ImpossibleCredit.
        """
        if size < 0:
            raise ImpossibleCredit(f"{size} bytes reported")
        while size:
            in_flight = stream or self.of_ended_streams
            if not in_flight:
                raise ImpossibleCredit(f"{size} bytes reported that are not in flight")
            push, taken = in_flight.take(size)
            size -= taken
            self.credit += taken
            push.size -= taken
            if not push.size:
                self._in_sync.discard(push)
                self._catching_up.discard(push)

    def ended(self, stream: BytesInFlight) -> None:
        """Record that a stream has ended: its bytes in flight are reported later."""
        for push, size in stream.items():
            self.of_ended_streams.add(push, size)
        stream.clear()

    def _send(self, push: Push, size: int, in_flight: set[Push]) -> Push:
        self.credit -= size
        push.size += size
        in_flight.add(push)
        return push
