"""Forwarding of metadata proposals to the leader, and retransmission after a leader change or reconnection."""

from cordwood.cluster.metadata.commands import BrokerId
from cordwood.cluster.metadata.raft.handshake import PeerRole
from cordwood.cluster.metadata.raft.machine import Machine
from cordwood.cluster.metadata.raft.messages import Propose
from cordwood.cluster.metadata.raft.node import RaftNode
from cordwood.cluster.metadata.raft.transport import Transport


class ProposalForwarder:
    """The proposals of this voter, and those it takes as the leader, until the next tick."""

    def __init__(self, node: RaftNode, machine: Machine, transport: Transport) -> None:
        self._node, self._machine, self._transport = node, machine, transport
        self._waiting: list[bytes] = []
        self._sent_to: tuple[BrokerId, int] | None = None

    def submit(self, entry: bytes) -> None:
        """Take an entry of this voter. The machine keeps the entry until it is answered."""
        self._waiting.append(entry)

    def take(self, proposal: Propose, sender: PeerRole) -> None:
        """Take an entry of another broker, which retransmits it if necessary."""
        if self._node.is_leader:
            self._waiting.append(proposal.entry)
        elif sender is PeerRole.OBSERVER and self._node.leader is not None:
            # Forward only an observer's proposal, so that no proposal loops while voters disagree on the leader.
            self._transport.send(self._node.leader, proposal)

    def send_again(self) -> None:
        """Retransmit with the next `send`: proposals in flight may be lost."""
        self._sent_to = None

    def send(self) -> None:
        """Send the new proposals to the leader; to a new leader, send all unanswered ones.

        The leader may have some of them already: a duplicate entry is applied once (`recent.py`).
        """
        leader = self._node.leader
        if leader is None:
            self._waiting.clear()
            self._sent_to = None
            return
        if self._sent_to != (leader, self._node.term):
            self._sent_to = leader, self._node.term
            self._waiting = list(self._machine.unanswered())
        if self._node.is_leader:
            if self._waiting:
                self._node.append(*self._waiting)
            self._waiting.clear()
        else:
            self._waiting = [entry for entry in self._waiting if not self._transport.send(leader, Propose(entry))]
