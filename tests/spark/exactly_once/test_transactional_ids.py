"""Transactional ids of tasks: no two that may be open at the same time are equal, and their number stays small."""

import os
from pathlib import Path

from cordwood.spark.exactly_once.transactional_ids import Leases, decider_of, is_of_a_task
from cordwood.spark.exactly_once.writes import WriteId

FIRST, SECOND = WriteId("query", 0), WriteId("query", 1)
MINUTE_MS = 60_000
LONG_AGO = (0, 0)


def test_tasks_of_a_version_differ_and_the_next_version_uses_their_ids_again(tmp_path: Path) -> None:
    leases = Leases(tmp_path)
    first = [leases.transactional_id(FIRST, MINUTE_MS) for _ in range(3)]
    assert len(set(first)) == 3
    assert [leases.transactional_id(SECOND, MINUTE_MS) for _ in range(3)] == first


def test_a_version_that_runs_again_gets_other_ids(tmp_path: Path) -> None:
    leases = Leases(tmp_path)
    second = leases.transactional_id(SECOND, MINUTE_MS)
    assert len({second, leases.transactional_id(SECOND, MINUTE_MS), leases.transactional_id(FIRST, MINUTE_MS)}) == 3


def test_processes_at_the_same_time_have_different_leases(tmp_path: Path) -> None:
    both = [Leases(tmp_path).transactional_id(FIRST, MINUTE_MS) for _ in range(2)]
    assert len(set(both)) == 2


def test_the_lease_of_a_process_that_lives_is_its_own_long_after_its_last_transaction(tmp_path: Path) -> None:
    idle = Leases(tmp_path)
    first = idle.transactional_id(FIRST, MINUTE_MS)
    for lease in tmp_path.iterdir():
        os.utime(lease, LONG_AGO)
    assert Leases(tmp_path).transactional_id(FIRST, MINUTE_MS) != first


def test_a_forked_process_has_a_lease_of_its_own(tmp_path: Path) -> None:
    leases = Leases(tmp_path)
    mine = leases.transactional_id(FIRST, MINUTE_MS)
    reading, writing = os.pipe()
    if not os.fork():
        os.write(writing, leases.transactional_id(FIRST, MINUTE_MS).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as child:
        assert child.read() not in ("", mine)
    os.wait()


def test_a_lease_is_free_again_after_its_process_and_its_last_transaction(tmp_path: Path) -> None:
    ended = Leases(tmp_path)
    first = ended.transactional_id(FIRST, MINUTE_MS)
    ended.release()
    second = Leases(tmp_path).transactional_id(FIRST, MINUTE_MS)
    assert second != first, "the transaction may still be open"
    for lease in tmp_path.iterdir():
        os.utime(lease, LONG_AGO)
    assert Leases(tmp_path).transactional_id(FIRST, MINUTE_MS) == first, "the other one is locked"


def test_a_lease_whose_file_is_deleted_is_not_given_to_another_process(tmp_path: Path) -> None:
    leases = Leases(tmp_path)
    first = leases.transactional_id(FIRST, MINUTE_MS)
    for lease in tmp_path.iterdir():
        lease.unlink()
    assert Leases(tmp_path).transactional_id(FIRST, MINUTE_MS) != first
    assert leases.transactional_id(SECOND, MINUTE_MS) == first


def test_ids_of_tasks_differ_from_those_of_drivers_and_of_similar_names(tmp_path: Path) -> None:
    of_a_task = Leases(tmp_path).transactional_id(WriteId("a:b", 0), MINUTE_MS)
    assert is_of_a_task(of_a_task, "a:b")
    assert not is_of_a_task(of_a_task, "a")
    assert not is_of_a_task(decider_of("a:b"), "a:b")
