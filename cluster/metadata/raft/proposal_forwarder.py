"""Forwarding of metadata proposals to the leader, and retransmission after a leader change or reconnection."""

import asyncio
from collections.abc import Callable

import structlog
from kio.schema.errors import ErrorCode

from cordwood.cluster.metadata.command_codec import UnknownCommand, decode
from cordwood.cluster.metadata.commands import BrokerId
from cordwood.cluster.metadata.image import CommandRefused
from cordwood.cluster.metadata.proposers import check_level, may_propose
from cordwood.cluster.metadata.quorum import QuorumOptions
from cordwood.cluster.metadata.raft.entry import TAG_BYTES
from cordwood.cluster.metadata.raft.entry import decode as decode_entry
from cordwood.cluster.metadata.raft.handshake import Peer
from cordwood.cluster.metadata.raft.machine import ENTRY_BYTES_MAX, Machine
from cordwood.cluster.metadata.raft.messages import Declined, MalformedMessage, Propose
from cordwood.cluster.metadata.raft.node import RaftNode
from cordwood.cluster.metadata.raft.transport import Transport
from cordwood.cluster.metadata.raft.voter_log import change_in
from cordwood.cluster.metadata.raft.voter_proposals import VoterProposals

_events = structlog.get_logger("quorum")


class ProposalForwarder:
    """The proposals of this voter, and those it takes as the leader, until the next tick."""

    def __init__(
        self, options: QuorumOptions, node: RaftNode, machine: Machine, transport: Transport, wake: Callable[[], None]
    ) -> None:
        self._options, self._wake = options, wake
        self._node, self._machine, self._transport = node, machine, transport
        self._waiting: list[bytes] = []
        self._sent_to: tuple[BrokerId, int] | None = None
        self._voter_proposals = VoterProposals(node, options.voters, self._decline)

    def __len__(self) -> int:
        """Return the number of entries that wait for the next `send`."""
        return len(self._waiting)

    def submit(self, entry: bytes) -> None:
        """Take an entry of this voter. The machine keeps the entry until it is answered."""
        self._waiting.append(entry)
        self._wake()

    def take(self, peer: Peer, proposal: Propose) -> None:
        """Take an entry of another broker, which retransmits it if necessary. Raises MalformedMessage.

        A refusal is not answered: a broker proposes no command that it would refuse itself.
        """
        try:
            self._check(peer.broker_id, proposal.entry)
        except (CommandRefused, UnknownCommand) as refusal:
            _events.warning("proposal.refused", broker=peer.broker_id, reason=str(refusal))
            return
        if self._node.is_leader:
            self._append_soon(proposal.entry, peer.broker_id)
        elif not peer.keeps_log and self._node.leader is not None:
            # Forward only an observer's proposal, so that no proposal loops while voters disagree on the leader.
            self._transport.send(self._node.leader, proposal)

    def send_again(self) -> None:
        """Retransmit with the next `send`: proposals in flight may be lost."""
        self._sent_to = None

    def send(self) -> None:
        """Send the new proposals to the leader; to a new leader, send all unanswered ones.

        The leader may have some of them already: a duplicate entry is applied once (`recent.py`).
        """
        leader, is_leader = self._node.leader, self._node.is_leader
        if not is_leader:
            self._voter_proposals.clear()
        if leader is None:
            self._waiting.clear()
            self._sent_to = None
            return
        if self._sent_to != (leader, self._node.term):
            self._sent_to = leader, self._node.term
            self._waiting = list(self._machine.unanswered())
        if is_leader:
            own, self._waiting = self._waiting, []
            for entry in own:
                self._append_soon(entry, None)
            if self._voter_proposals.is_waiting:
                self._voter_proposals.decide(self._machine.image, asyncio.get_running_loop().time())
            if self._waiting and self._node.is_leader and not self._voter_proposals.holds_back:
                appended, self._waiting = self._waiting, []
                self._node.append(*appended)
        elif self._waiting:
            # A voter that is cut off keeps its leader for as long: only what still has a proposer is kept for it.
            unanswered = filter(self._machine.awaits, self._waiting)
            self._waiting = [entry for entry in unanswered if not self._transport.send(leader, Propose(entry))]

    def declined(self, message: Declined) -> None:
        """Answer a proposal that the leader has refused."""
        _answer_declined(self._machine, message)

    def _append_soon(self, entry: bytes, sender: BrokerId | None) -> None:
        change = change_in(entry)
        if change is None:
            self._waiting.append(entry)
        else:
            self._voter_proposals.take(entry, change, sender, asyncio.get_running_loop().time())

    def _decline(self, sender: BrokerId | None, tag: bytes, refusal: CommandRefused) -> None:
        if sender is None:
            self._machine.decline(tag, refusal)
        else:
            self._transport.send(sender, Declined(tag, refusal.code, refusal.message))

    def _check(self, sender: BrokerId, proposed: bytes) -> None:
        """Raises MalformedMessage, UnknownCommand, CommandRefused."""
        if not TAG_BYTES <= len(proposed) <= ENTRY_BYTES_MAX:
            raise MalformedMessage(f"an entry of {len(proposed)} bytes")
        entry = decode_entry(proposed)
        if entry.command:
            command = decode(entry.command)
            if not may_propose(command, sender, self._node.voters):
                message = f"{type(command).__name__} is not for broker {sender} to propose."
                raise CommandRefused(ErrorCode.cluster_authorization_failed, message)
            check_level(command, self._machine.image)
            self._options.admit(command, self._machine.image)


class ObserverProposals:
    """The proposals of an observer: sent to the leader, directly or through the followed voter."""

    def __init__(self, machine: Machine, transport: Transport) -> None:
        self._machine, self._transport = machine, transport
        self._sent_to: tuple[BrokerId, int] | None = None
        self._unsent: list[bytes] = []
        """Entries that the connection did not take: the receiver does not keep up."""

    def submit(self, entry: bytes) -> None:
        """Send an entry if there is a leader. The machine keeps the entry until it is answered."""
        if self._sent_to is not None:
            self._unsent.append(entry)
            self._send_to(self._sent_to[0])

    def send_again(self) -> None:
        """Retransmit with the next `send`: proposals in flight may be lost."""
        self._sent_to = None

    def send(self, leader: BrokerId | None, followed: BrokerId | None, term: int) -> None:
        """Send the unsent proposals; to a new leader, send all unanswered ones."""
        if leader is None or followed is None:
            self._sent_to = None
            self._unsent.clear()
            return
        receiver = leader if self._transport.is_connected(leader) else followed
        if self._sent_to != (receiver, term):
            self._sent_to = receiver, term
            self._unsent = list(self._machine.unanswered())
        if self._unsent:
            self._send_to(receiver)

    def _send_to(self, receiver: BrokerId) -> None:
        unanswered = filter(self._machine.awaits, self._unsent)
        self._unsent = [entry for entry in unanswered if not self._transport.send(receiver, Propose(entry))]

    def declined(self, message: Declined) -> None:
        """Answer a proposal that the leader has refused."""
        _answer_declined(self._machine, message)


def _answer_declined(machine: Machine, message: Declined) -> None:
    try:
        code = ErrorCode(message.code)
    except ValueError:
        raise MalformedMessage(f"error code {message.code}") from None
    machine.decline(message.tag, CommandRefused(code, message.reason))
