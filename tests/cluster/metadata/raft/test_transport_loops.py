"""The transport's background loops: an unexpected error costs one round of one connection."""

import asyncio
import random
from typing import Any

from cordwood.chaos.sim.loop import SimulatedLoop
from cordwood.chaos.sim.network import SimulatedNetwork
from cordwood.chaos.sim.quorum import SimulatedQuorum, formed, run
from cordwood.cluster.metadata.raft.transport import SILENCE_MAX_S


class StumblingNetwork(SimulatedNetwork):
    """A network on which the first connection from each host fails with an error that no network has."""

    def __init__(self, loop: SimulatedLoop, rng: random.Random) -> None:
        super().__init__(loop, rng)
        self.stumbled: set[tuple[Any, str]] = set()

    async def connect(self, factory: Any, host: str, port: int) -> Any:
        connecting = asyncio.current_task(), host
        if connecting not in self.stumbled:
            self.stumbled.add(connecting)
            raise ValueError("an unexpected error")
        return await super().connect(factory, host, port)


class StuckEnd:
    """A connection's transport that cannot be aborted."""

    def __init__(self, transport: object) -> None:
        self._transport = transport

    def abort(self) -> None:
        raise ValueError("an unexpected error")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


def noted_errors() -> list[object]:
    errors: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context.get("exception")))
    return errors


def test_a_voter_is_dialled_again_after_an_unexpected_error() -> None:
    async def story() -> None:
        errors = noted_errors()
        quorum = SimulatedQuorum()
        quorum.network = StumblingNetwork(quorum.loop, random.Random(1))
        await quorum.start().formed()
        await quorum.put(1, "a")
        assert {type(error) for error in errors} == {ValueError}
        assert len(errors) == 3

    run(story())


def test_one_broken_connection_keeps_no_other_from_its_timeout() -> None:
    async def story() -> None:
        quorum = await formed()
        errors = noted_errors()
        leader = await quorum.leader()
        connections = quorum.quorums[leader]._transport._connections
        (stuck, broken), (silent, _) = connections.items()
        broken._transport = StuckEnd(broken._transport)  # type: ignore[assignment]
        quorum.cut_off(leader)
        await quorum.until(lambda: silent not in connections, seconds=2 * SILENCE_MAX_S)
        assert stuck in connections
        assert {type(error) for error in errors} == {ValueError}
        assert quorum.failures == []

    run(story())
