"""Runner of the active controller: heartbeats and probes in, commands to the metadata log out."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable

import structlog

from cordwood.cluster.broker.auto_balance import AutoBalancer
from cordwood.cluster.config.settings import Settings
from cordwood.cluster.kafka.cluster_client import ClusterClient
from cordwood.cluster.metadata.commands import BeginControlledShutdown, BrokerId, Command, FenceBroker, UnfenceBroker
from cordwood.cluster.metadata.controller import Controller, ControllerRules
from cordwood.cluster.metadata.cuts import DropCut
from cordwood.cluster.metadata.expiry import CutExpiry, TokenExpiry
from cordwood.cluster.metadata.image import NO_LEADER, CommandRefused, Image, changed_topics
from cordwood.cluster.metadata.quorum import Heartbeat, Quorum, QuorumFailed
from cordwood.cluster.metadata.voter_changes import replaced_directory
from cordwood.cluster.resources.turns import Turns

LOOKS_PER_SESSION = 10
REFUSED_S = 0.4
"""Seconds of refused connections after which a disconnected broker counts as killed."""
PROBE_INTERVAL_S, PROBING_S = 0.1, 1.5

IsRefused = Callable[[BrokerId], Awaitable[bool]]
"""Function that returns True if a broker's host refuses connections at its address."""

_events = structlog.get_logger("controller")

_NAMES: dict[type[Command], str] = {
    FenceBroker: "broker.fenced",
    UnfenceBroker: "broker.unfenced",
    BeginControlledShutdown: "broker.stopping",
}


class ControllerRunner:
    """The controller of this voter, at work while it is the active one. One batch of commands is in flight."""

    def __init__(
        self, quorum: Quorum, settings: Settings, is_refused: IsRefused, wall_clock: Callable[[], int]
    ) -> None:
        self._is_refused, self._wall_clock = is_refused, wall_clock
        self._token_expiry = TokenExpiry(settings.delegation_token_expiry_check_interval_ms / 1000)
        self._cut_expiry = CutExpiry()
        self._probes: dict[BrokerId, asyncio.Task[None]] = {}
        self._quorum, self._loop = quorum, asyncio.get_running_loop()
        self._controller = Controller(rules_of(settings))
        self._interval_s = settings.broker_session_timeout_ms / 1000 / LOOKS_PER_SESSION
        self._turn: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False
        self._settings = settings
        self._balancing: AutoBalancer | None = None

    def start(self, client: ClusterClient, turns: Turns) -> None:
        """Subscribe to heartbeats and leadership, and decide whenever this is the active controller.

        auto.balance asks other brokers with `client`.
        """
        self._balancing = AutoBalancer(self._quorum, self._settings, client, turns)
        self._balancing.start()
        self._quorum.on_heartbeat(self._heard)
        self._quorum.on_hang_up(self._hung_up)
        self._look()
        self._quorum.on_leadership(self._leadership_changed)

    async def close(self) -> None:
        """Cancel the commands in flight. They may be applied nevertheless."""
        self._is_closed = True
        if self._balancing is not None:
            await self._balancing.close()
        if self._timer is not None:
            self._timer.cancel()
        under_way = [*self._probes.values(), *([] if self._turn is None else [self._turn])]
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)

    def _heard(self, heartbeat: Heartbeat) -> None:
        if self._controller.heard(heartbeat, self._quorum.image, self._loop.time()):
            self._begin_turn()

    def _hung_up(self, broker_id: BrokerId) -> None:
        self._controller.hung_up(broker_id)
        if broker_id not in self._probes and not self._is_closed:
            probe = self._loop.create_task(self._probe(broker_id), name=f"probe {broker_id}")
            self._probes[broker_id] = probe
            probe.add_done_callback(lambda _: self._probes.pop(broker_id, None))

    async def _probe(self, broker_id: BrokerId) -> None:
        """Report the broker as killed after REFUSED_S of refusals. A restarting broker listens again sooner.

        The listener of a process that is being killed may be closed after its connections, and accept a first probe.
        """
        began_s = refused_from_s = self._loop.time()
        while self._loop.time() - began_s < PROBING_S:
            if not await self._is_refused(broker_id):
                refused_from_s = self._loop.time()
            elif self._loop.time() - refused_from_s >= REFUSED_S:
                self._controller.refused(broker_id)
                self._begin_turn()
                return
            await asyncio.sleep(PROBE_INTERVAL_S)

    def _look(self) -> None:
        # Schedule the next look first: the timer must go on after an exception, and a slow proposal must not look like
        # a pause of this process.
        self._timer = self._loop.call_later(self._interval_s, self._look)
        self._controller.look(self._quorum.image, self._loop.time())
        self._begin_turn()

    def _leadership_changed(self, is_leader: bool) -> None:
        if self._turn is not None:
            # The commands in flight belong to a term that has ended.
            self._turn.cancel()
            self._turn = None
        if is_leader:
            self._controller.took_over(self._quorum.image, self._loop.time())
            self._begin_turn()

    def _begin_turn(self) -> None:
        if self._is_closed or not self._quorum.is_leader or (self._turn is not None and not self._turn.done()):
            return
        image, now_s = self._quorum.image, self._loop.time()
        commands = self._controller.decide(image, now_s)
        if (removal := self._token_expiry.decide(image, now_s, self._wall_clock())) is not None:
            commands.append(removal)
        commands += self._cut_expiry.decide(image, now_s, self._wall_clock())
        if (update := replaced_directory(image)) is not None:
            commands.append(update)
        if commands:
            self._turn = self._loop.create_task(self._take_turn(commands), name="controller")

    async def _take_turn(self, commands: list[Command]) -> None:
        before = self._quorum.image
        await asyncio.gather(*map(self._propose, commands))
        _log_leader_changes(before, self._quorum.image)

    async def _propose(self, command: Command) -> None:
        try:
            await self._quorum.propose(command)
        except CommandRefused as refusal:
            # The metadata has changed meanwhile: the next decision uses the new image.
            _events.info("command.refused", command=type(command).__name__, reason=refusal.message)
        except QuorumFailed as failure:
            _events.warning("command.unknown", command=type(command).__name__, reason=str(failure))
        else:
            if isinstance(command, FenceBroker | UnfenceBroker | BeginControlledShutdown):
                _events.info(_NAMES[type(command)], broker=command.broker_id)
            elif isinstance(command, DropCut):
                _events.info("cut.expired", cut=command.name)


def rules_of(settings: Settings) -> ControllerRules:
    """Return the controller's rules from the settings."""
    return ControllerRules(
        session_s=settings.broker_session_timeout_ms / 1000,
        is_rebalancing=settings.auto_leader_rebalance_enable,
        rebalance_interval_s=settings.leader_imbalance_check_interval_seconds,
        imbalance_percentage_max=settings.leader_imbalance_per_broker_percentage,
        auto_balance=settings.auto_balance,
    )


def _log_leader_changes(old: Image, new: Image) -> None:
    moved: Counter[BrokerId] = Counter()
    for before, after in changed_topics(old, new):
        if before is not None and after is not None:
            pairs = zip(before.partitions, after.partitions, strict=False)
            moved.update(now.leader for was, now in pairs if now.leader != was.leader)
    lost = moved.pop(NO_LEADER, 0)
    if moved:
        _events.info("leaders.moved", partitions=moved.total())
    if lost:
        _events.warning("leaders.lost", partitions=lost)
