"""How a proposal gets to the leader: into its log, or over to it; and again, when it is not sure to have arrived."""

from cordwood.cluster.metadata.commands import BrokerId
from cordwood.cluster.metadata.raft.handshake import PeerRole
from cordwood.cluster.metadata.raft.machine import Machine
from cordwood.cluster.metadata.raft.messages import Propose
from cordwood.cluster.metadata.raft.node import RaftNode
from cordwood.cluster.metadata.raft.transport import Transport


class ProposalForwarder:
    """The proposals of this voter, and of those who take it for the leader, until the next tick."""

    def __init__(self, node: RaftNode, machine: Machine, transport: Transport) -> None:
        self._node, self._machine, self._transport = node, machine, transport
        self._waiting: list[bytes] = []
        self._sent_to: tuple[BrokerId, int] | None = None

    def submit(self, entry: bytes) -> None:
        """An entry of ours. The machine knows whether it still has no answer."""
        self._waiting.append(entry)

    def take(self, proposal: Propose, sender: PeerRole) -> None:
        """An entry of somebody else's, who sends it again if need be."""
        if self._node.is_leader:
            self._waiting.append(proposal.entry)
        elif sender is PeerRole.OBSERVER and self._node.leader is not None:
            # Only an observer's, so that nothing goes in circles while voters disagree on who leads.
            self._transport.send(self._node.leader, proposal)

    def send_again(self) -> None:
        """What was on its way may be lost."""
        self._sent_to = None

    def send(self) -> None:
        """To a leader that is another than before goes all that is unanswered.

        It may have it already: an entry that arrives twice is applied once (`recent.py`).
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
