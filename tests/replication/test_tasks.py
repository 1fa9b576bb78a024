"""Background tasks: an error ends one round and is reported, and the next round follows."""

import asyncio
from itertools import pairwise

from virtual_time import run

from cordwood.replication.tasks import CONTAINED, PAUSE_MAX_S, PAUSE_S, Tasks


def test_a_loop_goes_on_after_a_round_that_failed_and_waits_longer_each_time() -> None:
    async def scenario() -> None:
        reported: list[object] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: reported.append(context.get("exception")))
        rounds: list[float] = []

        async def step() -> None:
            rounds.append(loop.time())
            await asyncio.sleep(0.1)
            assert len(rounds) > 8, "an invariant"

        tasks = Tasks()
        tasks.repeat(step, "a loop")
        await asyncio.sleep(300)
        await tasks.close()
        pauses = [later - earlier for earlier, later in pairwise(rounds)]
        assert PAUSE_S <= pauses[0] < pauses[3] < pauses[7] <= PAUSE_MAX_S + 0.2
        assert pauses[8] < 0.2, "once it works, it does not pause"
        assert len(reported) == 8
        ended = len(rounds)
        await asyncio.sleep(100)
        assert len(rounds) == ended

    run(scenario())


def test_a_task_that_fails_is_reported_and_ends_no_other() -> None:
    async def scenario() -> None:
        reported: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context.get("exception")))

        async def fails() -> None:
            raise KeyError("its own")

        tasks = Tasks()
        tasks.spawn(fails())
        other = tasks.spawn(asyncio.sleep(1, "done"))
        await asyncio.sleep(2)
        assert other.result() == "done"
        assert [type(error) for error in reported] == [KeyError]

    run(scenario())


def test_only_a_failed_task_that_is_not_contained_may_stop_the_broker() -> None:
    async def scenario() -> None:
        contexts: list[dict[str, object]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: contexts.append(context))

        async def fails() -> None:
            raise AssertionError("an invariant")

        for are_contained in (True, False):
            Tasks(are_contained=are_contained).spawn(fails())
            await asyncio.sleep(1)
        assert [CONTAINED in context for context in contexts] == [True, False]

    run(scenario())
