"""Producer ids are unique in the cluster, whatever happens to a request for a block of them."""

import asyncio
import gc
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.kafka.producer_ids import BLOCK, ProducerIds
from cordwood.cluster.metadata.commands import BrokerId, Command
from cordwood.cluster.metadata.image import CommandRefused, Image
from cordwood.cluster.metadata.image_builder import ImageBuilder
from cordwood.cluster.metadata.quorum import QuorumFailed, QuorumUnavailable


class UnsureQuorum:
    """A quorum that loses answers: with `answers` off applied proposals fail; `applies` off delays them."""

    def __init__(self) -> None:
        self.image = Image()
        self.answers = self.applies = True
        self.proposals = 0
        self._late: list[Command] = []

    async def propose(self, command: Command) -> Image:
        self.proposals += 1
        await asyncio.sleep(0)
        if not self.applies:
            self._late.append(command)
            raise QuorumUnavailable("no controller was found in time")
        self._apply(command)
        if not self.answers:
            raise QuorumUnavailable("the controller did not answer in time")
        return self.image

    def catch_up(self) -> None:
        """Apply the delayed proposals."""
        for command in self._late:
            try:
                self._apply(command)
            except CommandRefused:
                continue

    def _apply(self, command: Command) -> None:
        builder = ImageBuilder(self.image)
        builder.apply(command, self.image.index + 1)
        self.image = builder.image()


def reported(story: Callable[[UnsureQuorum], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(story(UnsureQuorum()))


def ids_of(quorum: UnsureQuorum, broker: int) -> ProducerIds:
    return ProducerIds(quorum, BrokerId(broker))  # type: ignore[arg-type]


async def refusal_of(ids: ProducerIds) -> ErrorCode:
    with pytest.raises(Refused) as refused:
        await ids.next()
    return refused.value.code


def test_brokers_hand_out_different_numbers() -> None:
    async def story(quorum: UnsureQuorum) -> None:
        brokers = [ids_of(quorum, broker) for broker in (1, 2, 3)]
        given = await asyncio.gather(*(ids.next() for ids in brokers for _ in range(BLOCK + 1)))
        assert len(set(given)) == 3 * (BLOCK + 1)

    reported(story)


class ClosingQuorum(UnsureQuorum):
    """A quorum that answers no proposal before it is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.closed = asyncio.Event()

    async def propose(self, _command: Command) -> Image:
        self.proposals += 1
        await self.closed.wait()
        raise QuorumFailed("the metadata is closed")


def test_a_failure_without_a_waiter_is_no_error() -> None:
    unheard: list[dict[str, Any]] = []

    async def story() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: unheard.append(context))
        quorum = ClosingQuorum()
        waiting = asyncio.ensure_future(ids_of(quorum, 1).next())
        while not quorum.proposals:
            await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        quorum.closed.set()
        while len(asyncio.all_tasks()) > 1:
            await asyncio.sleep(0)

    asyncio.run(story())
    gc.collect()
    assert unheard == []


def test_a_block_that_may_have_been_taken_is_not_used() -> None:
    async def story(quorum: UnsureQuorum) -> None:
        ids = ids_of(quorum, 1)
        quorum.answers = False
        assert await refusal_of(ids) is ErrorCode.coordinator_load_in_progress
        quorum.answers = True
        assert await ids.next() == BLOCK

    reported(story)


def test_a_request_that_is_granted_late_costs_a_block_at_most() -> None:
    async def story(quorum: UnsureQuorum) -> None:
        ids, other = ids_of(quorum, 1), ids_of(quorum, 2)
        quorum.applies = False
        assert await refusal_of(ids) is ErrorCode.coordinator_load_in_progress
        quorum.applies = True
        given = [await ids.next()]
        quorum.catch_up()
        given += [await other.next(), await ids_of(quorum, 1).next()]
        assert len({number // BLOCK for number in given}) == len(given)

    reported(story)


def test_everyone_who_waits_shares_one_attempt_and_its_failure() -> None:
    async def story(quorum: UnsureQuorum) -> None:
        ids = ids_of(quorum, 1)
        quorum.applies = False
        outcomes = await asyncio.gather(*(ids.next() for _ in range(50)), return_exceptions=True)
        assert all(isinstance(outcome, Refused) for outcome in outcomes)
        assert quorum.proposals == 1
        quorum.applies = True
        assert sorted(await asyncio.gather(*(ids.next() for _ in range(50)))) == list(range(50))
        assert quorum.proposals == 2

    reported(story)


def test_a_client_that_vanishes_while_it_waits_takes_nothing_from_the_others() -> None:
    async def story(quorum: UnsureQuorum) -> None:
        ids = ids_of(quorum, 1)
        first, second = asyncio.ensure_future(ids.next()), asyncio.ensure_future(ids.next())
        await asyncio.sleep(0)
        first.cancel()
        assert await second == 0

    reported(story)
