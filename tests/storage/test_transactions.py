"""LogTransactions of one log: last stable offset, aborted transactions, markers, truncation and recovery."""

import pytest
from log_fixture import DIRECTORY, ROOT, LogFixture

from cordwood.storage import checkpoint
from cordwood.storage.batch import TRANSACTIONAL, check
from cordwood.storage.errors import (
    DamagedLog,
    InvalidTransactionState,
    LostTail,
    OutOfOrderSequence,
    StaleProducerEpoch,
    TransactionCoordinatorFenced,
)
from cordwood.storage.producers import PRODUCERS_MAX, ProducerStateEntry
from cordwood.storage.records import Record, encode
from cordwood.storage.scrub import is_still_damaged, segment_with, verify, view_of
from cordwood.storage.state import load
from cordwood.storage.transaction_log import aborted_again
from cordwood.storage.transactions import DECIDED_MAX, LogTransactions


def entry(log: LogFixture, producer: int = 7) -> ProducerStateEntry:
    return dict(log.log.producers)[producer]


def send(log: LogFixture, sequence: int, count: int = 1, **options: int) -> int:
    """Send a transactional batch. Return its base offset."""
    values = [f"{sequence + place}" for place in range(count)]
    return log.send(sequence, *values, transactional=True, **options).base_offset


def test_a_log_without_transactions_is_stable_up_to_its_high_watermark(log: LogFixture) -> None:
    log.append("a", "b")
    log.send(0, "c")
    assert (log.last_stable(), log.last_stable(1), log.aborted()) == (3, 1, [])


def test_an_ongoing_transaction_holds_the_last_stable_offset(log: LogFixture) -> None:
    log.append("a")
    assert send(log, 0, 2) == 1
    send(log, 2)
    log.append("b")
    assert log.last_stable() == 1
    log.commit()
    assert (log.last_stable(), log.end) == (6, 6)


def test_a_transaction_is_stable_once_its_marker_is_below_the_high_watermark(log: LogFixture) -> None:
    send(log, 0)
    log.commit()
    log.append("a")
    assert [log.last_stable(watermark) for watermark in range(4)] == [0, 0, 2, 3]


def test_the_oldest_undecided_transaction_counts(log: LogFixture) -> None:
    send(log, 0, producer=1)
    send(log, 0, producer=2)
    log.commit(producer=2)
    assert log.last_stable() == 0
    log.commit(producer=1)
    assert log.last_stable() == log.end
    send(log, 0, producer=2, epoch=1)
    assert log.last_stable() == 4


def test_an_old_transaction_stays_the_first_among_thousands_of_later_ones() -> None:
    transactions = LogTransactions()
    transactions.began(5, 7)
    for offset in range(6, 3 * DECIDED_MAX):
        transactions.began(offset, 8)
        transactions.decided(offset)
        assert transactions.first_undecided(-1) == 5
    transactions.began(3 * DECIDED_MAX, 9)
    transactions.decided(5)
    assert transactions.first_undecided(-1) == 3 * DECIDED_MAX
    transactions.decided(3 * DECIDED_MAX)
    assert transactions.first_undecided(-1) == -1


def test_aborted_transactions_are_sorted_by_their_first_offset(log: LogFixture) -> None:
    send(log, 0, producer=1)
    send(log, 0, producer=2)
    send(log, 0, producer=3)
    log.abort(producer=2)
    log.commit(producer=3)
    log.abort(producer=1)
    assert log.aborted() == [(1, 0), (2, 1)]
    assert log.aborted(3, 4) == [(1, 0), (2, 1)], "a transaction reaches up to its marker"
    assert log.aborted(4) == [(1, 0)]
    assert log.aborted(0, 1) == [(1, 0)]
    assert log.aborted(6) == []


def test_a_marker_without_data_adds_nothing_to_the_aborted_index(log: LogFixture) -> None:
    log.append("a")
    log.abort()
    assert (log.aborted(), log.last_stable(), log.end) == ([], 2, 2)
    assert (len(entry(log).batches), entry(log).epoch) == (0, 0)


def test_the_transaction_of_a_producer_begins_after_its_last_marker(log: LogFixture) -> None:
    send(log, 0)
    log.abort()
    send(log, 1)
    log.commit()
    send(log, 2)
    log.abort()
    assert log.aborted() == [(7, 0), (7, 4)]


def test_a_batch_without_its_transaction_is_refused(log: LogFixture) -> None:
    log.send(0, "a")
    send(log, 1)
    with pytest.raises(InvalidTransactionState):
        log.send(2, "b")
    assert log.send(0, "a").is_duplicate
    log.commit()
    assert log.send(2, "b").base_offset == 3


def test_a_batch_of_the_brokers_own_needs_no_sequence_number(log: LogFixture) -> None:
    for _ in range(2):
        log.send(-1, "offset", transactional=True)
    log.abort()
    assert (log.aborted(), log.end) == ([(7, 0)], 3)
    with pytest.raises(StaleProducerEpoch):
        log.abort(epoch=-1)


def test_a_marker_of_a_new_epoch_fences_the_epoch_before(log: LogFixture) -> None:
    send(log, 0)
    log.commit(epoch=1, v2=True)
    with pytest.raises(StaleProducerEpoch):
        send(log, 1)
    with pytest.raises(OutOfOrderSequence):
        send(log, 1, epoch=2)
    assert send(log, 0, epoch=1) == 2


def test_within_an_epoch_the_sequence_goes_on_after_a_marker(log: LogFixture) -> None:
    send(log, 0, 2)
    log.commit()
    with pytest.raises(OutOfOrderSequence):
        send(log, 0)
    assert log.send(0, "0", "1", transactional=True).is_duplicate
    assert send(log, 2) == 3


def test_a_marker_of_an_older_epoch_is_refused(log: LogFixture) -> None:
    send(log, 0, epoch=2)
    with pytest.raises(StaleProducerEpoch):
        log.abort(epoch=1)
    log.abort(epoch=2)
    assert entry(log).epoch == 2


def test_a_marker_of_the_second_protocol_has_a_greater_epoch_unless_it_is_a_repetition(log: LogFixture) -> None:
    send(log, 0)
    with pytest.raises(StaleProducerEpoch):
        log.commit(epoch=0, v2=True)
    log.commit(epoch=1, v2=True)
    log.commit(epoch=1, v2=True)
    send(log, 0, epoch=1)
    with pytest.raises(StaleProducerEpoch):
        log.commit(epoch=1, v2=True)
    assert log.last_stable() == 3
    log.abort(epoch=2, v2=True)
    assert log.aborted() == [(7, 3)]


def test_a_marker_of_an_older_coordinator_is_refused(log: LogFixture) -> None:
    log.commit(coordinator_epoch=5)
    with pytest.raises(TransactionCoordinatorFenced):
        log.abort(coordinator_epoch=4)
    log.commit(coordinator_epoch=5)
    log.close().reopen()
    with pytest.raises(TransactionCoordinatorFenced):
        log.abort(coordinator_epoch=4)


def test_a_new_epoch_of_the_producer_does_not_admit_an_older_coordinator(log: LogFixture) -> None:
    log.commit(coordinator_epoch=5)
    send(log, 0, epoch=1)
    with pytest.raises(TransactionCoordinatorFenced):
        log.abort(epoch=1, coordinator_epoch=4)


def test_a_transaction_of_an_earlier_epoch_is_another_one(log: LogFixture) -> None:
    send(log, 0)
    for epoch, has_begun in ((0, True), (1, False)):
        batch = encode(
            [Record(0, 0, None, b"next")],
            producer_id=7,
            producer_epoch=epoch,
            base_sequence=1,
            attributes=TRANSACTIONAL,
        )
        assert log.log.producers.has_begun(check(batch)) is has_begun


def test_a_follower_takes_markers_that_a_leader_would_refuse(log: LogFixture) -> None:
    leader = LogFixture()
    leader.commit(epoch=3, coordinator_epoch=5)
    log.take_stamped(leader.read(0))
    leader.truncate_fully(1)
    leader.abort(epoch=2, coordinator_epoch=4)
    log.take_stamped(leader.read(1))
    assert (entry(log).epoch, entry(log).coordinator_epoch, entry(log).marker_offset) == (2, 4, 1)


def test_a_follower_has_the_same_transactions_as_its_leader(log: LogFixture) -> None:
    leader = LogFixture()
    send(leader, 0, producer=1)
    send(leader, 0, producer=2)
    leader.append("a")
    leader.abort(producer=1)
    log.take_stamped(leader.read(0))
    assert (log.aborted(), log.last_stable()) == ([(1, 0)], 1)
    assert dict(log.log.producers) == dict(leader.log.producers)


def test_markers_keep_a_producer_alive_and_an_ongoing_transaction_too(log: LogFixture) -> None:
    send(log, 0, producer=1)
    send(log, 0, producer=2)
    log.now += 1000
    log.commit(producer=2, coordinator_epoch=3)
    log.log.producers.expire(log.now + 500, 1000)
    assert set(dict(log.log.producers)) == {1, 2}
    log.log.producers.expire(log.now + 5000, 1000)
    assert set(dict(log.log.producers)) == {1}
    assert log.last_stable() == 0
    log.abort(producer=1)
    assert log.aborted() == [(1, 0)]


def test_the_bound_of_producers_leaves_ongoing_transactions(log: LogFixture) -> None:
    send(log, 0, producer=0)
    producers = log.log.producers
    header = check(encode([Record(0, 0, None, b"")], producer_id=1, producer_epoch=0, base_sequence=0))
    for producer_id in range(1, PRODUCERS_MAX + 2):
        producers.appended(header._replace(producer_id=producer_id), producer_id, producer_id + 1, 0)
    known = set(dict(producers))
    assert len(known) == PRODUCERS_MAX + 2 - PRODUCERS_MAX // 10
    assert 0 in known
    assert 1 not in known


def test_records_that_replace_a_truncated_transaction_are_stable(log: LogFixture) -> None:
    log.append("a")
    send(log, 0)
    assert log.last_stable() == 1
    log.truncate(1).append("b")
    assert log.last_stable() == 2


def test_a_truncation_of_a_marker_makes_its_transaction_ongoing_again(log: LogFixture) -> None:
    send(log, 0)
    log.abort(epoch=1, coordinator_epoch=4)
    assert log.aborted() == [(7, 0)]
    log.truncate(1)
    assert (log.aborted(), log.last_stable()) == ([], 0)
    assert (entry(log).epoch, entry(log).coordinator_epoch) == (0, -1)
    assert log.send(0, "0", transactional=True).is_duplicate
    assert send(log, 1) == 1
    log.commit(epoch=1)
    assert (log.aborted(), log.last_stable()) == ([], 3)


def test_a_truncation_of_a_transactions_data_ends_it(log: LogFixture) -> None:
    log.append("a")
    send(log, 0)
    log.truncate(1)
    assert log.last_stable() == 1
    assert dict(log.log.producers) == {}
    send(log, 0, epoch=3)
    log.truncate(1)
    assert log.last_stable() == 1


def test_transactions_survive_a_restart(log: LogFixture) -> None:
    send(log, 0, producer=1)
    send(log, 0, producer=2)
    log.abort(producer=2, epoch=1)
    log.flush().checkpoint()
    send(log, 0, producer=3)
    log.abort(producer=3)
    for restart in (log.flush, log.close):
        restart()
        log.reopen()
        assert (log.damage, log.aborted(), log.last_stable()) == ([], [(2, 1), (3, 3)], 0)
        assert (entry(log, 2).epoch, len(entry(log, 2).batches), entry(log, 2).marker_offset) == (1, 0, 2)
    log.abort(producer=1)
    assert log.aborted() == [(1, 0), (2, 1), (3, 3)]


def test_after_a_restart_a_truncation_may_still_remove_a_marker(log: LogFixture) -> None:
    send(log, 0)
    log.abort(epoch=1)
    log.flush().checkpoint().close().reopen()
    assert log.last_stable(1) == 0
    log.truncate(1)
    assert (log.last_stable(), log.aborted(), entry(log).epoch) == (0, [], 0)
    log.flush().checkpoint().reopen()
    assert (log.damage, log.last_stable(), log.aborted()) == ([], 0, [])


def test_a_marker_above_the_flushed_end_is_not_in_the_checkpoint(log: LogFixture) -> None:
    send(log, 0)
    log.flush()
    log.commit(epoch=1)
    log.checkpoint().power_cut(keep=0).reopen()
    assert (log.end, log.last_stable(), entry(log).epoch) == (1, 0, 0)


@pytest.mark.parametrize("is_forgotten", [False, True])
def test_a_truncation_below_the_high_watermark_reads_the_batches(log: LogFixture, is_forgotten: bool) -> None:
    log.append("a")
    send(log, 0, producer=1)
    for number in range(30):
        send(log, number, producer=2)
        log.abort(producer=2)
    log.abort(producer=1, epoch=4)
    log.flush().checkpoint()
    if is_forgotten:
        log.log.producers.transactions.committed_to(log.end)
    end = log.end
    for cut in (end - 1, end - 2, 20, 7, 3, 2):
        log.truncate(cut)
        assert log.last_stable() == 1
        assert log.aborted() == [(2, at) for at in range(2, cut - 1, 2)]
    log.truncate(1)
    assert (log.last_stable(), log.aborted()) == (1, [])


@pytest.mark.parametrize("restart", [False, True])
def test_a_truncation_where_damage_begins_keeps_the_ongoing_transactions(log: LogFixture, restart: bool) -> None:
    """A replica that lost its tail is truncated there, and its leader's markers end the transactions before it."""
    send(log, 0, producer=1)
    log.append(*"abcdef").flush().checkpoint()
    send(log, 0, producer=2)
    log.append("g")
    send(log, 0, producer=3)
    log.abort(producer=3)
    log.append("h").flush()
    [segment] = log.log.segments
    log.disk.flip(log.path(0), segment.locate(8) + 61, 3)
    log.reopen()
    [damage] = log.damage
    assert isinstance(damage, LostTail)
    assert damage.offset == 8
    log.log.producers.transactions.committed_to(log.end)
    log.truncate(damage.offset)
    if restart:
        log.flush().checkpoint().reopen()
    assert log.last_stable() == 0
    log.append("g")
    log.abort(producer=2)
    log.abort(producer=1)
    assert log.aborted() == [(1, 0), (2, 7)]


@pytest.mark.parametrize("harm", ["flipped", "lost", "lost since the checkpoint"])
def test_a_truncation_waits_for_the_repair_of_what_it_has_to_read(log: LogFixture, harm: str) -> None:
    send(log, 0, producer=1)
    log.flush().checkpoint().append(*["x" * 200] * 12)
    send(log, 0, producer=2)
    log.abort(producer=2)
    log.flush()
    if harm != "lost since the checkpoint":
        log.checkpoint()
    end, path, away = log.end - 1, log.path(log.bases[1]), f"{ROOT}/away"
    if harm == "flipped":
        log.disk.flip(path, 100, 3)
    else:
        log.disk.rename(path, away)
        log.reopen()
    log.log.producers.transactions.committed_to(log.end)
    with pytest.raises(DamagedLog):
        log.truncate(end)
    assert (log.end, log.aborted(end)) == (end + 1, [(2, end - 1)])
    if harm == "flipped":
        log.disk.flip(path, 100, 3)
    else:
        log.disk.rename(away, path)
        log.reopen()
    log.truncate(end)
    assert (log.end, log.last_stable(), log.aborted()) == (end, 0, [])


def test_a_truncation_reads_a_segment_that_a_power_cut_has_made_longer_again(log: LogFixture) -> None:
    """The segment was sealed after the checkpoint: no manifest lists it, and its preallocated space is there again."""
    send(log, 0, producer=1)
    send(log, 0, producer=2)
    log.flush().checkpoint().configure(segment_bytes=1)
    log.abort(producer=2)
    log.append("a").flush().power_cut(keep_bytes_of_unsynced=100).reopen()
    assert len(log.bases) == 3
    assert log.log.segments[0].size > 1000
    log.log.producers.transactions.committed_to(log.end)
    log.truncate(2)
    assert (log.last_stable(), log.aborted()) == (0, [])


def test_a_new_start_has_no_transactions(log: LogFixture) -> None:
    send(log, 0)
    log.flush().checkpoint().truncate_fully(50)
    assert (log.last_stable(), log.aborted(), dict(log.log.producers)) == (50, [], {})
    log.reopen()
    assert (log.last_stable(), log.start) == (50, 50)


def test_retention_removes_aborted_transactions_with_the_segments_of_their_markers(log: LogFixture) -> None:
    for number in range(20):
        send(log, number)
        log.abort()
    log.append(*"abcdefghijklmnopqrst").flush().checkpoint()
    before = [path for path in log.disk.files() if path.endswith(".txnindex")]
    assert len(before) > 2
    log.configure(retention_bytes=2500).retain()
    left = [path for path in log.disk.files() if path.endswith(".txnindex")]
    assert left == [log.path(base, "txnindex") for base in log.bases if log.disk.exists(log.path(base, "txnindex"))]
    assert 0 < len(left) < len(before)
    assert log.aborted() == [(7, at) for at in range(0, 40, 2) if at + 1 >= log.start]
    log.reopen()
    assert log.aborted() == [(7, at) for at in range(0, 40, 2) if at + 1 >= log.start]


def aborting(log: LogFixture) -> list[tuple[int, int]]:
    """Fill several segments with aborted transactions, one of them as long as the log. Return all of them."""
    send(log, 0, producer=1)
    for number in range(20):
        send(log, number, producer=2)
        log.abort(producer=2)
    log.abort(producer=1)
    log.append(*"abcdefghijkl").flush().checkpoint()
    return [(1, 0), *((2, at) for at in range(1, 41, 2))]


@pytest.mark.parametrize("harm", ["gone", "flipped", "cut"])
def test_a_lost_aborted_index_is_found_by_reads_and_scrubbing(log: LogFixture, harm: str) -> None:
    expected = aborting(log)
    log.close().reopen()
    base = next(base for base in log.bases if log.disk.exists(log.path(base, "txnindex")) and base > 0)
    path = log.path(base, "txnindex")
    if harm == "gone":
        log.disk.lose(path)
    elif harm == "flipped":
        log.disk.flip(path, 40, 3)
    else:
        log.disk.shorten(path, 40)
    log.reopen()
    with pytest.raises(DamagedLog):
        log.aborted()
    [damage] = [proof for proof in verify(view_of(log.log)) if isinstance(proof, DamagedLog)]
    assert damage.path == path
    assert is_still_damaged(log.log, damage)
    segment = segment_with(log.log, path)
    assert segment is not None
    segment.aborted.replace(list(aborted_again(log.log.segments, segment, segment.end_offset)))
    log.checkpoint()
    assert not is_still_damaged(log.log, damage)
    assert log.aborted() == expected
    log.close().reopen()
    assert (log.damage, log.aborted()) == ([], expected)


@pytest.mark.parametrize("later", [False, True])
def test_a_segment_that_is_lost_at_the_recovery_point_keeps_its_aborted_transactions(
    log: LogFixture, later: bool
) -> None:
    send(log, 0, producer=1)
    log.append(*"abcdefghijklmn")
    log.abort(producer=1)
    log.flush().checkpoint()
    if later:
        # Then the end of the log is lost, because no one knows what was there.
        log.append("o")
    log.configure(segment_bytes=1).append("p").flush()
    lost = log.bases[-2]
    log.disk.remove(log.path(lost, "log"))
    log.reopen()
    assert [(damage.path, isinstance(damage, LostTail)) for damage in log.damage] == [(log.path(lost), later)]
    assert log.aborted(0, 1) == [(1, 0)]
    log.truncate(lost)
    assert (log.last_stable(), log.aborted()) == (0, [])


def test_a_segment_is_removed_unread_whatever_is_in_its_aborted_index(log: LogFixture) -> None:
    aborting(log)
    log.close().reopen()
    base = log.bases[3]
    for other in log.bases[3:]:
        if log.disk.exists(log.path(other, "txnindex")):
            log.disk.lose(log.path(other, "txnindex"))
    log.truncate(base)
    assert (log.end, log.last_stable()) == (base, 0)
    assert log.aborted() == [(2, at) for at in range(1, base - 1, 2)]


def test_recovery_finds_the_aborted_transactions_of_the_last_segment_again(log: LogFixture) -> None:
    expected = aborting(log)
    send(log, 0, producer=3)
    log.abort(producer=3)
    expected.append((3, log.end - 2))
    log.flush().checkpoint()
    log.disk.lose(log.path(log.bases[-1], "txnindex"))
    log.reopen()
    assert [damage.path for damage in log.damage] == [log.path(log.bases[-1], "txnindex")]
    assert log.aborted() == expected
    log.checkpoint().reopen()
    assert (log.damage, log.aborted()) == ([], expected)


def test_aborted_transactions_that_damage_hides_are_not_read_as_committed_ones(log: LogFixture) -> None:
    """The aborted index is damaged together with a batch of its segment, which another replica has to bring back."""
    log.configure(segment_bytes=1 << 20)
    expected = aborting(log)
    damaged = log.log.segments[0].locate(30) + 61
    log.disk.flip(log.path(0), damaged, 3)
    log.disk.flip(log.path(0, "txnindex"), 40, 3)
    log.reopen()
    for _ in range(2):
        with pytest.raises(DamagedLog):
            log.aborted(0, 2)
        assert log.path(0, "txnindex") in [damage.path for damage in log.damage]
        [segment] = log.log.segments
        assert segment.aborted.damage() is not None
        log.append("later").flush().checkpoint().reopen()
    log.disk.flip(log.path(0), damaged, 3)
    log.reopen()
    assert log.aborted() == expected
    assert log.checkpoint().reopen().aborted() == expected
    assert log.damage == []


def test_a_transaction_without_records_is_not_missing_from_a_damaged_aborted_index(log: LogFixture) -> None:
    send(log, 0, producer=1)
    log.configure(segment_bytes=1).append("a").configure(segment_bytes=1 << 20)
    log.append("b")
    log.abort(producer=1)
    log.configure(retention_bytes=1).flush().checkpoint().retain()
    log.flush().checkpoint()
    assert log.start > 0
    log.disk.flip(log.path(log.bases[-1], "txnindex"), 40, 3)
    log.reopen()
    assert (log.aborted(), log.last_stable()) == ([], log.end)


def test_an_aborted_transaction_is_found_from_all_its_segments(log: LogFixture) -> None:
    aborting(log)
    assert len(log.bases) > 4
    for base in log.bases[:4]:
        assert (1, 0) in log.aborted(base, base + 1)
    log.close().reopen()
    assert log.aborted(0, 1) == [(1, 0)]


def test_the_checkpoint_has_the_transactions_of_each_segment(log: LogFixture) -> None:
    aborting(log)
    recovered = load(log.disk, DIRECTORY)
    assert recovered.segments is not None
    assert recovered.active is not None
    undecided = [row.undecided for row in recovered.segments]
    assert undecided[:3] == [0, 0, 0]
    assert sum(row.aborted for row in recovered.segments) + recovered.active.aborted == 21


def test_a_log_whose_checkpoint_is_lost_reads_its_transactions_from_the_batches(log: LogFixture) -> None:
    expected = aborting(log)
    send(log, 0, producer=9)
    log.flush().checkpoint()
    log.disk.lose(f"{DIRECTORY}/recovery")
    log.reopen()
    assert (log.aborted(), log.last_stable()) == (expected, log.end - 1)


def version(log: LogFixture) -> int:
    found = checkpoint.load(log.disk, f"{DIRECTORY}/recovery")
    assert found is not None
    return found.version


def test_the_checkpoint_of_a_log_without_transactions_has_the_version_before(log: LogFixture) -> None:
    log.append(*"abcdefghijklmnopqrst")
    log.send(0, "a", producer=3)
    log.flush().checkpoint()
    assert version(log) == 2
    log.kill().reopen()
    assert (log.damage, log.aborted(), log.send(0, "a", producer=3).is_duplicate) == ([], [], True)
    send(log, 0)
    log.flush().checkpoint()
    assert version(log) == 3
    log.abort()
    log.flush().checkpoint()
    assert version(log) == 3
    log.kill().reopen()
    assert (log.damage, log.aborted()) == ([], [(7, 21)])
    log.truncate_fully(30)
    assert version(log) == 2
