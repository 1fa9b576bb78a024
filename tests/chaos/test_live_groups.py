"""Rows of live members of consumer-protocol and share groups as a part of the history."""

import numpy as np

from cordwood.chaos.checks import check, count_by_kind
from cordwood.chaos.history import UNKNOWN, AckType, Outcome
from cordwood.chaos.history_builder import HistoryBuilder
from cordwood.chaos.live.client_rows import NONE, POLLS, SHARES, PollKind, PollRow, RowArray, ShareKind, ShareRow
from cordwood.chaos.live.histories import CONSUMER_GROUP, add_commits, add_faults, add_ownerships
from cordwood.chaos.live.share_groups import GROUP, UNSEEN, add_share_group, finished

ACCEPT, RELEASE = AckType.ACCEPT, AckType.RELEASE
S = 1_000_000_000


def member(*rows: tuple[PollKind, int, int]) -> RowArray:
    """Return the rows of a member, as kind, partition and second."""
    return np.array([PollRow(kind, partition, NONE, NONE, 1, at * S) for kind, partition, at in rows], dtype=POLLS)


def sharing(*rows: ShareRow) -> RowArray:
    return np.array(list(rows), dtype=SHARES)


def joined(at: int = 0) -> ShareRow:
    return ShareRow(ShareKind.JOINED, NONE, NONE, NONE, NONE, at * S, at * S)


def acquired(offset: int, at: int, *, count: int = 1) -> ShareRow:
    return ShareRow(ShareKind.ACQUIRED, 0, offset, offset, count, at * S - 1, at * S)


def acknowledged(offset: int, at: int, kind: AckType = ACCEPT, *, code: int = 0) -> ShareRow:
    return ShareRow(ShareKind.ACKNOWLEDGED, 0, offset, code, kind, at * S, at * S + 1)


def anomalies(*members: RowArray, starts: dict[int, int] | None = None) -> dict[str, int]:
    """Return the anomalies of a share group, with records 0 to 3 in its partition."""
    history = HistoryBuilder()
    for sequence in range(4):
        history.ok(history.invoke(0, sequence, 0, 0), sequence, 1)
        history.poll(0, 0, sequence, sequence, 2)
    add_share_group(history, members, 1, starts or {}, frozenset())
    return count_by_kind(check(history.build()))


def test_partitions_are_a_members_from_the_assignment_to_the_revocation() -> None:
    history = HistoryBuilder()
    first = member((PollKind.ASSIGNED, 0, 1), (PollKind.REVOKED, 0, 5), (PollKind.ASSIGNED, 1, 5))
    second = member((PollKind.ASSIGNED, 0, 6), (PollKind.LOST, 0, 9), (PollKind.ASSIGNED, 0, 10))
    add_ownerships(history, [first, second], 7, CONSUMER_GROUP)
    owned = history.build().ownerships
    assert owned.member.tolist() == [7]
    assert (owned.since_ns.tolist(), owned.until_ns.tolist()) == ([1 * S], [5 * S])
    assert owned.coordinator.tolist() == [UNKNOWN]


def test_two_members_with_a_partition_at_a_time_are_found_unless_a_fault_is_near() -> None:
    rows = [member((PollKind.ASSIGNED, 0, since), (PollKind.REVOKED, 0, since + 5)) for since in (1, 3)]
    for faults, kinds in (
        ([], {"double-assignment": 1}),
        ([(0.0, 2.0)], {}),
        ([(60.0, 62.0)], {"double-assignment": 1}),
    ):
        history = HistoryBuilder()
        add_ownerships(history, rows, 0)
        add_faults(history, faults)
        assert count_by_kind(check(history.build())) == kinds


def test_commits_of_another_group_are_apart() -> None:
    history = HistoryBuilder()
    rows = [PollRow(PollKind.ASSIGNED, 0, NONE, NONE, 1, 1), PollRow(PollKind.COMMITTED, 0, 5, NONE, 1, 2)]
    add_commits(history, [np.array(rows, dtype=POLLS)], CONSUMER_GROUP)
    assert history.build().commits.group.tolist() == [CONSUMER_GROUP]


def test_a_share_group_that_keeps_its_promises_has_no_anomaly() -> None:
    first = sharing(joined(), acquired(0, 1), acquired(1, 1), acknowledged(0, 2), acknowledged(1, 2, RELEASE))
    second = sharing(joined(), acquired(1, 3, count=2), acknowledged(1, 4))
    assert anomalies(first, second, starts={0: 2}) == {}
    assert finished([first, second]) == 2


def test_a_record_that_comes_again_after_its_acknowledgement_is_found() -> None:
    first = sharing(joined(), acquired(0, 1), acknowledged(0, 2))
    assert anomalies(first, sharing(joined(), acquired(0, 3, count=2))) == {"acknowledged-redelivery": 1}
    refused = sharing(joined(), acquired(0, 1), acknowledged(0, 2, code=NONE))
    assert anomalies(refused, sharing(joined(), acquired(0, 30, count=2))) == {}


def test_a_record_that_the_group_passed_is_found_with_some_unobserved_deliveries() -> None:
    assert anomalies(sharing(joined(), acquired(0, 1)), starts={0: 1}) == {"lost-delivery": 1}
    assert anomalies(sharing(joined(), acquired(0, 1, count=5 - UNSEEN)), starts={0: 1}) == {}


def test_a_new_consumer_of_a_member_has_another_session() -> None:
    history = HistoryBuilder()
    rows = sharing(joined(), acquired(0, 1), joined(5), acknowledged(0, 6, code=NONE))
    add_share_group(history, [rows], 1, {}, frozenset())
    built = history.build()
    assert built.acquisitions.session[0] != built.acknowledgements.session[0]
    assert built.acknowledgements.outcome.tolist() == [Outcome.INFO]
    assert built.share_groups.group.tolist() == [GROUP]
