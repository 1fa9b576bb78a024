"""What the log's entries make: the image, and an answer for who proposed them. The same on voters and observers.

An entry is eight bytes by which its proposer knows it again, then the command. One without a command changes nothing:
whoever proposed it knows, when it is applied, that the image has everything that was committed before.
"""

import asyncio
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from kio.schema.errors import ErrorCode

from cordwood.cluster.metadata import snapshot
from cordwood.cluster.metadata.commands import Command, decode, encode
from cordwood.cluster.metadata.draft import Draft
from cordwood.cluster.metadata.image import CommandRefused, Image
from cordwood.cluster.metadata.quorum import Listener, QuorumFailed, QuorumUnavailable, attempt
from cordwood.cluster.metadata.raft.messages import Install, MalformedMessage, Row

PROPOSAL_TIMEOUT_S = 5.0
FORMED_POLL_S = 0.05
PROPOSALS_MAX = 10_000
ENTRY_BYTES_MAX = 16 << 20

_TAG_BYTES = 8
_BARRIER = b""


class Machine:
    """The newest image and the term of its last entry; who listens; and the proposals that wait for an answer."""

    def __init__(self, image: Image, term: int, rng: random.Random) -> None:
        self.image, self.term = image, term
        self._rng = rng
        self._listeners: list[Listener] = []
        self._waiting: dict[bytes, tuple[bytes, asyncio.Future[Image]]] = {}
        self._failure: QuorumFailed | None = None

    def subscribe(self, listener: Listener) -> None:
        self._listeners.append(listener)

    async def propose(self, command: Command | None, submit: Callable[[bytes], None]) -> Image:
        """Have an entry made for a command, or None for a barrier, submitted; and wait until our image has it.

        Raises as Quorum.propose says.
        """
        entry, outcome = self._proposal(command)
        submit(entry)
        try:
            async with asyncio.timeout(PROPOSAL_TIMEOUT_S):
                return await outcome
        except TimeoutError:
            raise QuorumUnavailable(f"no answer of the metadata quorum in {PROPOSAL_TIMEOUT_S:g} seconds") from None
        finally:
            self._waiting.pop(entry[:_TAG_BYTES], None)

    async def formed(self, submit: Callable[[bytes], None]) -> None:
        """Wait until there is a cluster, and the image has all that was committed as this was called."""
        while True:
            try:
                if (await self.propose(None, submit)).cluster_id:
                    return
            except QuorumUnavailable:
                continue
            await asyncio.sleep(FORMED_POLL_S)

    def entry(self, command: Command | None) -> bytes:
        """What nobody waits for the outcome of."""
        return self._rng.randbytes(_TAG_BYTES) + (_BARRIER if command is None else encode(command))

    def check(self, entry: bytes) -> None:
        """Raises MalformedMessage for an entry that would stop everybody who applies it."""
        command = entry[_TAG_BYTES:]
        if not _TAG_BYTES <= len(entry) <= ENTRY_BYTES_MAX:
            raise MalformedMessage(f"an entry of {len(entry)} bytes")
        try:
            if command:
                attempt(Draft(self.image), decode(command), self.image.index + 1)
        except Exception as error:
            raise MalformedMessage(f"an entry that cannot be applied: {error!r}") from error

    def _proposal(self, command: Command | None) -> tuple[bytes, asyncio.Future[Image]]:
        if self._failure is not None:
            raise self._failure
        if len(self._waiting) >= PROPOSALS_MAX:
            raise QuorumUnavailable(f"{PROPOSALS_MAX} changes of the metadata wait for an answer already")
        entry = self.entry(command)
        if len(entry) > ENTRY_BYTES_MAX:
            message = f"a change of the metadata of {len(entry)} bytes is too large"
            raise CommandRefused(ErrorCode.message_too_large, message)
        outcome: asyncio.Future[Image] = asyncio.get_running_loop().create_future()
        self._waiting[entry[:_TAG_BYTES]] = entry, outcome
        return entry, outcome

    def unanswered(self) -> Iterator[bytes]:
        """The entries that somebody still waits for, in the order in which they were proposed."""
        return (entry for entry, _ in self._waiting.values())

    def apply(self, rows: Iterable[Row]) -> None:
        """Apply entries that are final, tell the listeners once, then answer those proposed here.

        Raises UnknownCommand where a newer Cordwood wrote one.
        """
        old, draft = self.image, Draft(self.image)
        refusals: dict[bytes, CommandRefused | None] = {}
        index = old.index
        has_commands = False
        for entry, index, self.term in rows:
            tag, command = entry[:_TAG_BYTES], entry[_TAG_BYTES:]
            refusal = attempt(draft, decode(command), index) if command else None
            has_commands |= bool(command)
            if tag in self._waiting:
                # Of an entry that arrived twice the first one has the answer.
                refusals.setdefault(tag, refusal)
        self.image = replace(draft.image(), index=index)
        if has_commands:
            self._tell(old)
        for tag, refusal in refusals.items():
            self._answer(tag, refusal)

    def install(self, image: Image, term: int) -> None:
        """Have another broker's image in the place of ours, which it is ahead of.

        What was proposed here and is in it gets no answer: proposing it again finds out.
        """
        assert image.index > self.image.index, "an image never takes us back"
        old, self.image, self.term = self.image, image, term
        self._tell(old)

    def fail(self, failure: QuorumFailed) -> None:
        """Nothing more will be applied."""
        self._failure = failure
        for _, outcome in self._waiting.values():
            if not outcome.done():
                outcome.set_exception(failure)
        self._waiting.clear()

    def _tell(self, old: Image) -> None:
        for listener in self._listeners:
            listener(old, self.image)

    def _answer(self, tag: bytes, refusal: CommandRefused | None) -> None:
        _, outcome = self._waiting.pop(tag)
        if outcome.done():
            return
        if refusal is None:
            outcome.set_result(self.image)
        else:
            outcome.set_exception(refusal)


def unpacked(message: Install) -> Image:
    """The image that a message brings. Raises MalformedMessage."""
    try:
        image = snapshot.decode(message.image)
    except (ValueError, TypeError, LookupError) as error:
        raise MalformedMessage(f"an image that does not read as one: {error}") from error
    if image.index != message.index:
        raise MalformedMessage(f"an image of entry {image.index} called one of {message.index}")
    return image
