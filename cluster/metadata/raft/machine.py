"""The Raft state machine: applies committed entries to the image and answers their proposers.

Voters and observers run the same state machine.
"""

import asyncio
import random
from collections.abc import Callable, Iterable, Iterator

import structlog
from kio.schema.errors import ErrorCode

from cordwood.cluster.metadata import snapshot
from cordwood.cluster.metadata.command_codec import UnknownCommand, decode, encode
from cordwood.cluster.metadata.commands import Command
from cordwood.cluster.metadata.image import CommandRefused, Image
from cordwood.cluster.metadata.image_builder import ImageBuilder
from cordwood.cluster.metadata.listeners import Listener, Listeners
from cordwood.cluster.metadata.proposers import check_level
from cordwood.cluster.metadata.quorum import QuorumFailed, QuorumUnavailable, attempt_in_steps
from cordwood.cluster.metadata.raft import entry as entry_format
from cordwood.cluster.metadata.raft.entry import TAG_BYTES, Entry
from cordwood.cluster.metadata.raft.messages import Install, MalformedMessage, Row
from cordwood.cluster.metadata.recent import is_late
from cordwood.cluster.metadata.snapshot import Snapshot
from cordwood.storage.steps import Steps

PROPOSAL_TIMEOUT_S = 5.0
FORMED_POLL_S = 0.05
PROPOSALS_MAX = 10_000
ENTRY_BYTES_MAX = 16 << 20

_BARRIER = b""

_events = structlog.get_logger("quorum")


class Machine:
    """The newest image, the term of its last entry, the listeners, and the unanswered proposals."""

    def __init__(self, image: Image, term: int, rng: random.Random) -> None:
        self.image, self.term = image, term
        self.whole = Snapshot(image, term)
        """The newest image without passed-over entries: the one to snapshot and to send."""
        self._rng = rng
        self._listeners = Listeners()
        self._waiting: dict[bytes, tuple[bytes, asyncio.Future[Image]]] = {}
        self._failure: QuorumFailed | None = None

    def subscribe(self, listener: Listener) -> None:
        self._listeners.add(listener)

    async def propose(self, command: Command | None, submit: Callable[[bytes], None]) -> Image:
        """Submit an entry for a command, or a barrier for None. Return the image that includes it.

        Raises as Quorum.propose does.
        """
        if command is not None:
            check_level(command, self.image)
        entry, outcome = self._proposal(command)
        submit(entry)
        try:
            async with asyncio.timeout(PROPOSAL_TIMEOUT_S):
                return await outcome
        except TimeoutError:
            raise QuorumUnavailable(
                f"no response from the metadata quorum within {PROPOSAL_TIMEOUT_S:g} seconds"
            ) from None
        finally:
            self._waiting.pop(entry[:TAG_BYTES], None)
            # A refusal leads to this frame by its traceback: with the future it would be a reference cycle.
            del outcome

    async def formed(self, submit: Callable[[bytes], None]) -> None:
        """Wait until the cluster has an id, and the image has all entries committed before this call."""
        while True:
            try:
                if (await self.propose(None, submit)).cluster_id:
                    return
            except QuorumUnavailable:
                continue
            await asyncio.sleep(FORMED_POLL_S)

    def entry(self, command: Command | None) -> bytes:
        """Return a new entry, for a proposal without a waiting proposer too."""
        tag = self._rng.randbytes(TAG_BYTES)
        return entry_format.encode(tag, self.image.index, _BARRIER if command is None else encode(command))

    def _proposal(self, command: Command | None) -> tuple[bytes, asyncio.Future[Image]]:
        if self._failure is not None:
            raise self._failure
        if len(self._waiting) >= PROPOSALS_MAX:
            raise QuorumUnavailable(f"{PROPOSALS_MAX} metadata changes are already waiting for a response")
        entry = self.entry(command)
        if len(entry) > ENTRY_BYTES_MAX:
            message = f"a change of the metadata of {len(entry)} bytes is too large"
            raise CommandRefused(ErrorCode.message_too_large, message)
        outcome: asyncio.Future[Image] = asyncio.get_running_loop().create_future()
        self._waiting[entry[:TAG_BYTES]] = entry, outcome
        return entry, outcome

    def unanswered(self) -> Iterator[bytes]:
        """Return the unanswered entries, in the order of their proposal."""
        return (entry for entry, _ in self._waiting.values())

    def awaits(self, entry: bytes) -> bool:
        """Return whether the entry was proposed here and is unanswered: its proposer has not given up."""
        return entry[:TAG_BYTES] in self._waiting

    def apply(self, rows: Iterable[Row]) -> Steps[None]:
        """Apply committed entries, in steps. At their end, call the listeners once and answer the local proposers.

        Without the end nothing has changed.
        """
        old, builder = self.image, ImageBuilder(self.image)
        failures: dict[bytes, Exception | None] = {}
        index = old.index
        has_commands = False
        term = self.term
        for row, index, row_term in rows:
            term = row_term
            entry = entry_format.decode(row)
            failure = yield from _applied(builder, entry, index)
            has_commands |= bool(entry.command)
            if entry.tag in self._waiting:
                # A duplicate entry has the answer of the first.
                failures.setdefault(entry.tag, failure)
        assert self.image is old, "entries are applied one after the other"
        self.image, self.term = builder.image(index), term
        if not self.image.passed_over:
            self.whole = Snapshot(self.image, self.term)
        if has_commands:
            self._listeners.notify(old, self.image)
        for tag, failure in failures.items():
            self._answer(tag, failure)

    def install(self, image: Image, term: int) -> None:
        """Replace the image by a newer one of another broker.

        The outcome of a command proposed here that the new image includes is unknown.
        """
        assert image.index > self.image.index, "an image never takes us back"
        old, self.image, self.term = self.image, image, term
        self.whole = Snapshot(image, term)
        self._listeners.notify(old, self.image)
        for tag in [tag for tag in self._waiting if tag in image.recent]:
            self._answer(tag, _unknown_outcome())

    def decline(self, tag: bytes, refusal: CommandRefused) -> None:
        """Answer a proposal that the leader does not append."""
        if tag in self._waiting:
            self._answer(tag, refusal)

    def fail(self, failure: QuorumFailed) -> None:
        """Fail all proposals. No more entries are applied."""
        self._failure = failure
        for _, outcome in self._waiting.values():
            if not outcome.done():
                outcome.set_exception(failure)
        self._waiting.clear()

    def _answer(self, tag: bytes, failure: Exception | None) -> None:
        _, outcome = self._waiting.pop(tag)
        if outcome.done():
            return
        if failure is None:
            outcome.set_result(self.image)
        else:
            outcome.set_exception(failure)


def _applied(builder: ImageBuilder, entry: Entry, index: int) -> Steps[Exception | None]:
    """Apply an entry unless it was applied before. Return the error for its proposer, if any."""
    if not entry.command:
        return None
    if entry.after is not None:
        # An entry of an earlier version has no window: snapshots of that version include its outcome.
        if is_late(entry.after, index):
            return QuorumUnavailable(
                f"the command was proposed after entry {entry.after} and arrived too late, at entry {index}"
            )
        if builder.has_noted(entry.tag):
            return _unknown_outcome()
        builder.note(entry.tag, index)
    try:
        command = decode(entry.command)
    except UnknownCommand as unknown:
        # A newer version may not need this broker's support of the command; this broker needs all later entries.
        _events.error("command.passed_over", index=index, reason=str(unknown))
        builder.pass_over(index)
        return None
    return (yield from attempt_in_steps(builder, command, index))


def _unknown_outcome() -> QuorumUnavailable:
    return QuorumUnavailable("the command was applied before, and its result is no longer known")


def unpacked(message: Install) -> Image:
    """Decode the image of a message. Raises MalformedMessage."""
    try:
        image = snapshot.decode(message.image)
    except (ValueError, TypeError, LookupError) as error:
        raise MalformedMessage(f"a malformed image: {error}") from error
    if image.index != message.index:
        raise MalformedMessage(f"an image of entry {image.index} in a message for entry {message.index}")
    return image
