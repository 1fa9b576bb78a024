"""Followers reconnect to a leader whose connections are all taken by clients."""

import asyncio
import struct

from cordwood.bench.counters.cluster import CountedCluster, batch, check_produced, produce
from cordwood.chaos.sim.host import KAFKA_PORT, host_name
from cordwood.chaos.sim.loop import Process, run

CONNECTIONS_MAX = 12
ASKED_EVERY_S = 0.2
AGAIN_S = 5.0
CONNECTS_AFTER_S = 0.01
API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, 0)


class Busy(asyncio.Protocol):
    """A client that sends a request at intervals, and so is never idle for long."""

    def __init__(self) -> None:
        self.ended = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._ask()

    def connection_lost(self, _error: Exception | None) -> None:
        self._next.cancel()
        self.ended.set_result(None)

    def _ask(self) -> None:
        self._transport.write(API_VERSIONS)
        self._next = asyncio.get_running_loop().call_later(ASKED_EVERY_S, self._ask)


async def stay_connected(address: tuple[str, int], refusals: list[float]) -> None:
    """Reconnect immediately whenever the broker closes the connection. Record the time of each refusal."""
    loop = asyncio.get_running_loop()
    while True:
        _, busy = await loop.create_connection(Busy, *address)
        await busy.ended
        refusals.append(loop.time())
        await asyncio.sleep(CONNECTS_AFTER_S)


def test_followers_connect_again_where_clients_have_all_connections() -> None:
    async def story() -> None:
        cluster = await CountedCluster(3, is_quiet=False, max_connections=CONNECTIONS_MAX).begin()
        leader_id, request = cluster.world.leader(0), produce([(0, batch(100))])
        followers = [broker_id for broker_id in cluster.world.hosts if broker_id != leader_id]
        client, leader = cluster.client("producer"), (host_name(leader_id), KAFKA_PORT)
        check_produced(await cluster.by(client.ask(leader, request), "producer"))
        refusals: list[float] = []
        crowd = [
            cluster.world.loop.create_task(stay_connected(leader, refusals), context=Process("crowd").context())
            for _ in range(2 * CONNECTIONS_MAX)
        ]
        await asyncio.sleep(1)
        assert refusals, "all of them found room"
        for follower in followers:
            cluster.world.network.disconnect(host_name(leader_id), host_name(follower))
        await asyncio.sleep(0.1)
        async with asyncio.timeout(AGAIN_S):
            check_produced(await cluster.by(client.ask(leader, request), "producer"))
        for one in crowd:
            one.cancel()

    run(story())
