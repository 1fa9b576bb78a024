"""One metadata log in memory and the brokers that share it; the test chooses the leader and the partitioned brokers."""

import asyncio
from collections.abc import Callable

from cordwood.cluster.metadata.commands import BrokerId, Command
from cordwood.cluster.metadata.image import Image
from cordwood.cluster.metadata.image_builder import apply
from cordwood.cluster.metadata.listeners import Listener
from cordwood.cluster.metadata.quorum import (
    Heartbeat,
    QuorumStatus,
    QuorumUnavailable,
    VoterStatus,
)

PROPOSAL_S = 0.01
"""The time until a proposed command is applied."""


class MetadataLog:
    """The log that all voters share. A voter that `is_cut_off` cannot propose, and exchanges no heartbeats."""

    def __init__(self) -> None:
        self.image = Image()
        self.voters: list[QuorumInMemory] = []
        self.leader: int | None = None
        self.proposed: list[Command] = []

    def voter(self, broker: int) -> "QuorumInMemory":
        voter = QuorumInMemory(self, BrokerId(broker))
        self.voters.append(voter)
        return voter

    def elect(self, broker: int | None) -> None:
        old, self.leader = self.leader, broker
        for voter in self.voters:
            if voter.broker_id in (old, broker) and old != broker:
                for reported in voter.leadership_listeners:
                    reported(voter.broker_id == broker)

    def hang_up(self, broker: int) -> None:
        """Close all connections of a broker."""
        for voter in self.voters:
            for reported in voter.hang_up_listeners if voter.broker_id != broker else ():
                reported(BrokerId(broker))

    def apply(self, command: Command) -> Image:
        """Append and apply a command. Raises CommandRefused."""
        self.proposed.append(command)
        old, self.image = self.image, apply(self.image, command, self.image.index + 1)
        for voter in self.voters:
            for listener in voter.listeners:
                listener(old, self.image)
        return self.image


class QuorumInMemory:
    """The metadata layer of one broker."""

    def __init__(self, log: MetadataLog, broker_id: BrokerId) -> None:
        self.log, self.broker_id = log, broker_id
        self.is_cut_off = False
        self.listeners: list[Listener] = []
        self.heartbeat_listeners: list[Callable[[Heartbeat], None]] = []
        self.leadership_listeners: list[Callable[[bool], None]] = []
        self.hang_up_listeners: list[Callable[[BrokerId], None]] = []

    @property
    def image(self) -> Image:
        return self.log.image

    @property
    def term(self) -> int:
        return 1

    @property
    def is_leader(self) -> bool:
        return self.log.leader == self.broker_id

    async def propose(self, command: Command) -> Image:
        await asyncio.sleep(PROPOSAL_S)
        if self.is_cut_off or self.log.leader is None:
            raise QuorumUnavailable("no leader")
        return self.log.apply(command)

    def subscribe(self, listener: Listener) -> None:
        self.listeners.append(listener)

    def status(self) -> QuorumStatus:
        leader = None if self.log.leader is None else BrokerId(self.log.leader)
        voters = (VoterStatus(voter.broker_id, None, not self.is_cut_off, 0) for voter in self.log.voters)
        return QuorumStatus(leader, self.term, self.image.index, tuple(voters))

    def send_heartbeat(self, heartbeat: Heartbeat) -> None:
        for voter in self.log.voters:
            if voter is self or not (self.is_cut_off or voter.is_cut_off):
                for reported in voter.heartbeat_listeners:
                    reported(heartbeat)

    def on_heartbeat(self, callback: Callable[[Heartbeat], None]) -> None:
        self.heartbeat_listeners.append(callback)

    def on_hang_up(self, callback: Callable[[BrokerId], None]) -> None:
        self.hang_up_listeners.append(callback)

    def on_leadership(self, callback: Callable[[bool], None]) -> None:
        self.leadership_listeners.append(callback)
        if self.is_leader:
            callback(True)
