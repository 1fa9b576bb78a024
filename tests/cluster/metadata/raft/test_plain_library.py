"""PySyncObj's own behaviour where our node differs (test_node.py): the reason for the overrides of ADR 10.

If one of these tests fails with another version, an override may have become unnecessary.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pysyncobj import SyncObj, SyncObjConf
from pysyncobj.node import Node
from raft_node_fixture import in_no_time

from cordwood.cluster.metadata.raft.library import check_source


class Silence:
    """A transport that delivers nothing."""

    ready = True

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []

    def send(self, _node: Node, message: dict[str, Any]) -> None:
        self.sent.append(message)

    def __getattr__(self, _name: str) -> Any:
        return lambda *_: None


class Plain:
    """PySyncObj's own node 1 of `voters`."""

    def __init__(self, voters: int) -> None:
        self.transport = Silence()
        self.others = [Node(voter) for voter in range(2, voters + 1)]
        configuration = SyncObjConf(autoTick=False, appendEntriesUseBatch=True)
        self.library = SyncObj(Node(1), list(self.others), configuration, transport=self.transport)
        for other in self.others:
            self.private("onNodeConnected")(other)

    def private(self, name: str) -> Any:
        return getattr(self.library, f"_SyncObj__{name}")

    def receive(self, sender: int, **message: Any) -> None:
        self.private("onMessageReceived")(self.others[sender - 2], message)

    def append(self, *entries: tuple[bytes, int, int], term: int = 1) -> None:
        """Receive entries from node 2, after entry 1, with which every log begins."""
        self.receive(
            2, type="append_entries", term=term, commit_index=1, prevLogIdx=1, prevLogTerm=0, entries=list(entries)
        )

    def stand(self) -> None:
        self.library._SyncObj__raftElectionDeadline = -1.0
        self.library.doTick(0)


@pytest.fixture(autouse=True)
def time_stands_still() -> Iterator[None]:
    with in_no_time():
        yield


def test_it_is_the_version_that_we_know() -> None:
    check_source()


def test_an_append_that_comes_again_truncates_what_it_acknowledged() -> None:
    plain = Plain(voters=3)
    plain.append((b"\1", 2, 1), (b"\1", 3, 1))
    assert plain.transport.sent[-1]["next_node_idx"] == 4
    plain.append((b"\1", 2, 1))
    assert plain.private("getCurrentLogIndex")() == 2


def test_one_voter_is_a_majority_if_it_says_so_twice() -> None:
    plain = Plain(voters=5)
    plain.stand()
    for _ in range(2):
        plain.receive(2, type="response_vote", term=plain.library.raftCurrentTerm)
    assert plain.library._isLeader()


def test_a_reply_to_an_earlier_leadership_counts() -> None:
    plain = Plain(voters=3)
    plain.stand()
    plain.receive(2, type="response_vote", term=plain.library.raftCurrentTerm)
    plain.receive(2, type="next_node_idx", next_node_idx=3, reset=False, success=True)
    plain.library.doTick(0)
    assert plain.library.raftCommitIndex == 2


def test_it_stands_without_asking_and_so_deposes_a_leader_that_is_well() -> None:
    plain = Plain(voters=3)
    plain.append((b"\1", 2, 7), term=7)
    plain.receive(3, type="request_vote", term=8, last_log_index=9, last_log_term=7)
    assert plain.library.raftCurrentTerm == 8


def changing(journal: str) -> SyncObj:
    """Return PySyncObj's own node 1, with node 2, whose voters may change."""
    configuration = SyncObjConf(
        autoTick=False, appendEntriesUseBatch=True, dynamicMembershipChange=True, journalFile=journal
    )
    return SyncObj(Node(1), [Node(2)], configuration, transport=Silence(), nodeClass=Node)


def test_after_a_crash_a_new_voter_in_its_log_does_not_count(tmp_path: Path) -> None:
    library = changing(str(tmp_path / "journal"))
    library._SyncObj__onNodeConnected(Node(2))
    library._SyncObj__raftElectionDeadline = -1.0
    library.doTick(0)
    library._SyncObj__onMessageReceived(Node(2), {"type": "response_vote", "term": library.raftCurrentTerm})
    assert library._isLeader()
    library._SyncObj__raftCommitIndex = library._SyncObj__noopIDx
    library.doTick(0)
    library.addNodeToCluster(3)
    library.doTick(0)
    assert {node.id for node in library.otherNodes} == {2, 3}
    log_end = library._SyncObj__getCurrentLogIndex()
    library._SyncObj__raftLog._destroy()
    restarted = changing(str(tmp_path / "journal"))
    assert restarted._SyncObj__getCurrentLogIndex() == log_end, "the change is in its log"
    assert {node.id for node in restarted.otherNodes} == {2}, "and not in force: two of three count as two of two"


def test_a_leader_cannot_be_removed() -> None:
    plain = Plain(voters=2)
    assert not plain.private("doChangeCluster")(["rem", 1, Node(1)])
