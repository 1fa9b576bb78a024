"""A whole broker with access control, in simulated time. Clients have any identity: nothing has to prove it."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

from admin_fixture import message_of
from kio.index import load_request_schema

from cordwood.chaos.sim.cut_jobs import CutJobs
from cordwood.chaos.sim.host import DATA, KAFKA_PORT, SimulatedHost, host_name
from cordwood.chaos.sim.loop import SimulatedLoop, run
from cordwood.chaos.sim.network import SimulatedNetwork
from cordwood.cluster.broker.broker import Broker
from cordwood.cluster.config.settings import STANDARD_AUTHORIZER, Settings
from cordwood.cluster.kafka.client_connection import ClientConnection
from cordwood.cluster.kafka.in_process import InProcess
from cordwood.cluster.metadata.acls import Acl
from cordwood.cluster.metadata.commands import CreateAcls, DeleteAcls
from cordwood.cluster.metadata.image import Image
from cordwood.cluster.security.principal import Identity, Principal

LISTENER = "PLAINTEXT"
START_S, ANSWER_S = 60.0, 100.0
"""Simulated seconds."""
REQUEST_BYTES_MAX = 100 << 20

ALICE = Identity(Principal("User", "alice"), "10.0.0.1")
ROOT = Identity(Principal("User", "root"), "10.0.0.9")
"""A super user."""


class ClosedBroker:
    """One broker that enforces ACLs. `settings` are further ones."""

    def __init__(self, **settings: Any) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulatedLoop), "the broker lives in simulated time"
        network = SimulatedNetwork(loop, random.Random(1))
        enforced = {"authorizer_class_name": STANDARD_AUTHORIZER, "super_users": str(ROOT.principal)}
        usual = {
            "node_id": 1,
            "log_dirs": (DATA,),
            "listeners": (f"{LISTENER}://{host_name(1)}:{KAFKA_PORT}",),
            "auto_create_topics_enable": True,
            "offsets_topic_num_partitions": 1,
            "transaction_state_log_num_partitions": 1,
        }
        jobs = CutJobs(loop, random.Random(2), 0.0)
        loop.at_end.append(jobs.abandon)
        self._host = SimulatedHost(
            network, Settings(**{**usual, **enforced, **settings}), random.Random(3), [(0.0, 0.0)], jobs, self._ended
        )
        self._ids = 0
        self._acls: dict[Acl, UUID] = {}
        self._connections: dict[Identity, ClientConnection] = {}

    async def start(self) -> "ClosedBroker":
        self._host.start()
        async with asyncio.timeout(START_S):
            await asyncio.wait([self._host._starting])
        broker = self.broker
        self._here = InProcess(broker._end_of_tick, broker._replicas.read_piece, lambda _: None, REQUEST_BYTES_MAX)
        return self

    @property
    def broker(self) -> Broker:
        assert self._host.broker is not None, "the broker has ended"
        return self._host.broker

    @property
    def image(self) -> Image:
        return self.broker._quorum.image

    async def ask(self, who: Identity, api: int, version: int, **fields: Any) -> Any:
        """Send a request of one version. Nested fields are dicts; fields that the version lacks are left out."""
        return await self.send(who, message_of(load_request_schema(api, version), fields))

    async def send(self, who: Identity, request: Any) -> Any:
        connection = self._connections.get(who)
        if connection is None or not connection.is_open:
            connection = self._connections[who] = ClientConnection("test")
            connection.begin(self._here.open(LISTENER, self.broker._dispatcher.handle, connection.received, who))
        async with asyncio.timeout(ANSWER_S):
            return await connection.ask(request)

    async def allow(self, *acls: Acl) -> None:
        """Create ACLs."""
        ids = {}
        for acl in acls:
            self._ids += 1
            ids[acl] = UUID(int=self._ids)
        self._acls |= ids
        await self.broker._quorum.propose(CreateAcls(tuple((acl_id, acl) for acl, acl_id in ids.items())))

    async def forget(self, *acls: Acl) -> None:
        """Delete these ACLs; all that were created, if there are none."""
        gone = acls or tuple(self._acls)
        if gone:
            await self.broker._quorum.propose(DeleteAcls(tuple(self._acls.pop(acl) for acl in gone)))

    def _ended(self, _host: SimulatedHost, why: str) -> None:
        raise AssertionError(why)


def with_broker(story: Callable[[ClosedBroker], Awaitable[None]], **settings: Any) -> None:
    """Run a scenario of a broker in simulated time."""

    async def reported() -> None:
        await story(await ClosedBroker(**settings).start())

    run(reported())
