"""The adapter to PySyncObj: the only module that uses the library, and the private names of its election and ticks.

Used of the library (docs/adr/0010): terms and roles, the election with its timers, stepping down without a majority,
and the order of a tick. Not used: its journal, transport, snapshots, replication, and the results of commands.
"""

import asyncio
import hashlib
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from enum import IntEnum
from importlib import resources
from typing import Any

import pysyncobj
from pysyncobj import syncobj
from pysyncobj.node import Node

from cordwood.cluster.metadata.commands import BrokerId
from cordwood.cluster.metadata.quorum import QuorumOptions
from cordwood.cluster.metadata.raft.log import RaftLog
from cordwood.cluster.metadata.raft.messages import Row

SOURCE_SHA256 = "e8bdf06797085d734df86e24ab4802fe87893dff77268565ec036f7ad4a1cfe4"
"""The SHA-256 of PySyncObj 0.3.17's syncobj.py, whose private names this module uses."""


class Role(IntEnum):
    """PySyncObj's role numbers."""

    FOLLOWER = 0
    CANDIDATE = 1
    LEADER = 2


_ROLES = tuple(Role)


def check_source() -> None:
    """Raise RuntimeError if the installed library is not the version that these overrides were written for."""
    source = resources.files(pysyncobj).joinpath("syncobj.py").read_bytes()
    if hashlib.sha256(source).hexdigest() != SOURCE_SHA256:
        raise RuntimeError("this version of PySyncObj is not supported: install pysyncobj==0.3.17")


def _loop_time() -> float:
    return asyncio.get_running_loop().time()


# The library uses the event loop's clock, so that it runs in a simulator's virtual time.
syncobj.monotonicTime = _loop_time


class _NoPoller:
    """A poller that does nothing: the sockets belong to asyncio."""

    def poll(self, timeout: float) -> None:
        pass


class _Outbox:
    """The library's transport. The library still sends only the messages of elections."""

    ready = True

    def __init__(self, raft: "Library") -> None:
        self._raft = raft

    def send(self, node: Any, message: Mapping[str, Any]) -> None:
        self._raft.library_sent(node.id, message)

    def destroy(self) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        assert name.startswith("setOn"), name
        return lambda *_: None


class Library(syncobj.SyncObj):  # type: ignore[misc]
    """PySyncObj's node with public names. Each override has the name of the library's method that it replaces."""

    def __init__(self, options: QuorumOptions, log: RaftLog, applied: int) -> None:
        """Call this on the event loop whose clock the node is to use."""
        timing = self._timing = options.timing
        self._rng = options.rng
        self._nodes: dict[BrokerId, Node] = {}
        configuration = syncobj.SyncObjConf(
            autoTick=False,
            appendEntriesUseBatch=True,
            raftMinTimeout=timing.election_timeout_min_s,
            raftMaxTimeout=timing.election_timeout_max_s,
            appendEntriesPeriod=timing.append_interval_s,
            leaderFallbackTimeout=timing.fallback_s,
            connectionTimeout=max(3.0, timing.election_timeout_max_s),
            useFork=False,
            password=None,
        )
        super().__init__(Node(options.node_id), [], configuration, transport=_Outbox(self))
        self._poller = _NoPoller()
        self._SyncObj__raftLog = log
        self._SyncObj__raftCurrentTerm = max(log.getCurrentTerm(), log.end_term)
        self._SyncObj__votedForNodeId = log.getVotedForNodeId()
        self._SyncObj__raftCommitIndex = max(log.getRaftCommitIndex(), applied)
        self._SyncObj__raftLastApplied = applied

    def change_others(self, others: Iterable[BrokerId]) -> None:
        """Replace the other voters, of whom the library requests votes, and without whose responses a leader ends."""
        now = {self._node_of(other) for other in others}
        known: set[Node] = self.otherNodes
        for node in now - known:
            self._SyncObj__raftMatchIndex[node] = 0
            self._SyncObj__lastResponseTime[node] = _loop_time()
        self._SyncObj__otherNodes = now

    @property
    def term(self) -> int:
        term: int = self._SyncObj__raftCurrentTerm
        return term

    @property
    def role(self) -> Role:
        return _ROLES[self._SyncObj__raftState]

    @property
    def leader(self) -> BrokerId | None:
        node = self._SyncObj__raftLeader
        return None if node is None else node.id

    @property
    def commit_index(self) -> int:
        index: int = self._SyncObj__raftCommitIndex
        return index

    @commit_index.setter
    def commit_index(self, index: int) -> None:
        assert index >= self._SyncObj__raftCommitIndex, "committed entries stay committed"
        self._SyncObj__raftCommitIndex = index

    @property
    def applied_index(self) -> int:
        index: int = self._SyncObj__raftLastApplied
        return index

    @applied_index.setter
    def applied_index(self, index: int) -> None:
        self._SyncObj__raftLastApplied = index

    @property
    def term_began_index(self) -> int:
        """The index of the no-op that began this leader's term. Only for a leader."""
        index: int = self._SyncObj__noopIDx
        return index

    @property
    def deadline_s(self) -> float:
        """The time of the next election timeout."""
        deadline: float = self._SyncObj__raftElectionDeadline
        return deadline

    @deadline_s.setter
    def deadline_s(self, deadline_s: float) -> None:
        self._SyncObj__raftElectionDeadline = deadline_s

    def put_off_election(self) -> None:
        self.deadline_s = _loop_time() + self._SyncObj__generateRaftTimeout()

    def follow_leader(self, leader: BrokerId, term: int) -> None:
        """Become a follower of `leader` in this term or a later one."""
        if term > self.term:
            self._SyncObj__setCurrentTerm(term, None)
        self._SyncObj__raftLeader = self._node_of(leader)
        self._SyncObj__setState(Role.FOLLOWER)

    def step_down(self, term: int) -> None:
        """Become a follower in a later term, whose leader is not known yet."""
        self._SyncObj__setCurrentTerm(term, None)
        self.stop_leading()

    def stop_leading(self) -> None:
        """Become a follower in the current term, whose leader is not known."""
        self._SyncObj__raftLeader = None
        self._SyncObj__setState(Role.FOLLOWER)

    def forget_leader(self) -> None:
        self._SyncObj__raftLeader = None

    def heard_from_follower(self, follower: BrokerId) -> None:
        """Record that the leader got a message of a follower.

        Without a majority for `fallback_s`, the leader steps down.
        """
        self._SyncObj__lastResponseTime[self._node_of(follower)] = _loop_time()

    def peer_connected(self, peer: BrokerId) -> None:
        self._SyncObj__onNodeConnected(self._node_of(peer))

    def peer_disconnected(self, peer: BrokerId) -> None:
        self._SyncObj__onNodeDisconnected(self._node_of(peer))

    def library_receive(self, sender: BrokerId, message: Mapping[str, Any]) -> None:
        """Pass a message to the library, in the library's format."""
        self._SyncObj__onMessageReceived(self._node_of(sender), message)

    @abstractmethod
    def library_sent(self, receiver: BrokerId, message: Mapping[str, Any]) -> None:
        """Send an election message of the library."""

    @abstractmethod
    def replicate(self) -> None:
        """Send every follower the entries that it lacks, or a heartbeat."""

    @abstractmethod
    def apply_committed(self) -> bool:
        """Apply the committed entries. Return whether there were any."""

    @abstractmethod
    def became_leader(self) -> None:
        """Handle that this voter became the leader. The no-op of its term is in the log."""

    def _node_of(self, broker_id: BrokerId) -> Node:
        return self._nodes.setdefault(broker_id, Node(broker_id))

    def _SyncObj__getEntries(self, *_: Any) -> list[Row]:  # noqa: N802
        """Return nothing, so that the library commits nothing: it does not know which entries are on disk."""
        return []

    def _SyncObj__generateRaftTimeout(self) -> float:  # noqa: N802
        return self._rng.uniform(self._timing.election_timeout_min_s, self._timing.election_timeout_max_s)

    def _SyncObj__sendAppendEntries(self) -> None:  # noqa: N802
        self._SyncObj__newAppendEntriesTime = _loop_time() + self._timing.append_interval_s
        self.replicate()

    def _SyncObj__applyLogEntries(self) -> bool:  # noqa: N802
        return self.apply_committed()

    def _SyncObj__setCurrentTerm(self, term: int, vote: BrokerId | None) -> None:  # noqa: N802
        # First on disk: where they cannot be written, this voter has not entered the term, and answers nothing in it.
        self._SyncObj__raftLog.setCurrentTerm(term, vote)
        self._SyncObj__raftCurrentTerm, self._SyncObj__votedForNodeId = term, vote

    def _SyncObj__onBecomeLeader(self) -> None:  # noqa: N802
        try:
            super()._SyncObj__onBecomeLeader()
        except OSError:
            # Without the no-op of its term it is no leader.
            self.stop_leading()
            raise
        self.became_leader()

    def _checkCommandsToApply(self) -> None:  # noqa: N802
        """Do nothing: commands are appended to the log directly."""

    def _SyncObj__tryLogCompaction(self) -> None:  # noqa: N802
        """Do nothing: snapshots are taken by `RaftDisk`."""
