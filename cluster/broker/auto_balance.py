"""Runner of auto.balance: asks all brokers for the sizes of their replicas, and proposes the moves of a plan."""

import asyncio

import structlog
from kio.schema.describe_log_dirs.v4.request import DescribeLogDirsRequest

from cordwood.cluster.config.settings import Settings
from cordwood.cluster.kafka.cluster_client import ClusterClient
from cordwood.cluster.metadata.image import CommandRefused, Image
from cordwood.cluster.metadata.quorum import Quorum, QuorumFailed
from cordwood.cluster.proposals.auto_balance import AutoBalance, mode_of, next_moves
from cordwood.cluster.proposals.cluster_load import load_of, room_in
from cordwood.cluster.resources.turns import Turns

LOOKS_PER_GRACE = 10
LOOK_S_MAX = 30.0

_events = structlog.get_logger("balance")


class AutoBalancer:
    """Automatic moves of this voter, at work while it is the active controller and auto.balance is `all`."""

    def __init__(self, quorum: Quorum, settings: Settings, client: ClusterClient, turns: Turns) -> None:
        self._quorum, self._settings, self._client, self._turns = quorum, settings, client, turns
        grace_s = settings.auto_balance_grace_ms / 1000
        self._interval_s = min(grace_s / LOOKS_PER_GRACE, LOOK_S_MAX)
        self._balance = AutoBalance(grace_s)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to look at the cluster at intervals."""
        self._task = asyncio.get_running_loop().create_task(self._balance_at_intervals(), name="auto balance")

    async def close(self) -> None:
        """Propose no further move. Those in progress continue."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _balance_at_intervals(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self._interval_s)
            image = self._quorum.image
            own = image.configs_of_broker(self._settings.node_id)
            if not self._quorum.is_leader or mode_of(image, self._settings.auto_balance, own) != "all":
                self._balance.reset()
            elif self._balance.is_due(image, loop.time()):
                await self._move(image)

    async def _move(self, image: Image) -> None:
        known = await self._sizes(image)
        if known is None:
            return
        load = await self._turns.run(load_of(image, *known))
        commands = await self._turns.run(next_moves(image, load))
        for command in commands:
            try:
                await self._quorum.propose(command)
            except (CommandRefused, QuorumFailed) as failure:
                _events.info("move.refused", partition=command.partition, reason=str(failure))
                return
        if commands:
            _events.info("moves.begun", partitions=len(commands))

    async def _sizes(self, image: Image) -> tuple[dict[tuple[str, int], int], dict[int, int | None]] | None:
        """Return the bytes of each partition and the room of each broker; None if a live broker does not answer."""
        alive = [broker.id for broker in image.brokers.values() if broker.is_alive]
        answers = await self._client.ask_all(alive, lambda _: DescribeLogDirsRequest(topics=None))
        sizes: dict[tuple[str, int], int] = {}
        rooms: dict[int, int | None] = {}
        for broker_id, answer in answers.items():
            if answer is None:
                return None
            rooms[broker_id] = sum(room_in(found.usable_bytes, found.total_bytes) for found in answer.results)
            for directory in answer.results:
                async for topic, row in self._turns.within((one.name, one.partitions) for one in directory.topics):
                    place = (topic, row.partition_index)
                    sizes[place] = max(sizes.get(place, 0), row.partition_size)
        return sizes, rooms
