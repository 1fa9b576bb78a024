"""Deadlines by key: the earliest is known, later ones cost nothing, and the heap stays as small as its keys."""

import sys
from typing import Any
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from cordwood.cluster.groups import deadlines as module
from cordwood.cluster.groups.deadlines import MOVED_MAX, STALE_MAX, Deadlines

keys = st.integers(0, 5)
times = st.integers(0, 20)


def deadlines(**at: int) -> Deadlines[str]:
    made: Deadlines[str] = Deadlines()
    for key, time in at.items():
        made.put(key, time)
    return made


def test_keys_are_due_in_the_order_of_their_deadlines() -> None:
    known = deadlines(anna=30, ben=10, carl=20, dora=10)
    assert known.next() == 10
    assert list(known.take_due(20)) == ["ben", "dora", "carl"]
    assert (known.next(), len(known)) == (30, 1)


def test_a_deadline_moves_later_and_earlier() -> None:
    known = deadlines(anna=10, ben=20)
    known.put("anna", 40)
    assert known.next() == 20
    known.put("ben", 50)
    assert list(known.take_due(39)) == []
    known.put("ben", 5)
    assert list(known.take_due(45)) == ["ben", "anna"]
    assert known.next() is None


def test_a_key_that_is_put_back_with_its_old_deadline_is_due_once() -> None:
    known = deadlines(anna=10)
    known.remove("anna")
    known.put("anna", 10)
    assert list(known.take_due(10)) == ["anna"]


def test_deadlines_may_change_while_due_keys_are_taken() -> None:
    known = deadlines(anna=10, ben=11, carl=12)
    taken = []
    for key in known.take_due(12):
        taken.append(key)
        if key == "anna":
            known.remove("ben")
            known.put("anna", 100)
            known.put("dora", 12)
    assert taken == ["anna", "carl", "dora"]
    assert known.at("anna") == 100


def test_the_heap_is_as_small_as_its_keys() -> None:
    known: Deadlines[int] = Deadlines()
    for number in range(10_000):
        known.put(number, 1_000_000)
        known.remove(number)
    for number in range(10_000):
        known.put(0, 1_000_000 - number)
    assert len(known._entries) <= STALE_MAX + 2


def test_deadlines_that_moved_together_cost_one_rebuild() -> None:
    members = 5_000
    known: Deadlines[int] = Deadlines()
    for time in (10, 100_000):
        for number in range(members):
            known.put(number, time + number)
    calls = 0

    def count(_frame: object, event: str, _called: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    first = known.next()
    sys.setprofile(None)
    assert first == 100_000
    assert calls < 20 * MOVED_MAX
    assert list(known.take_due(200_000)) == list(range(members))
    assert (known.next(), len(known._entries), len(known._entry_of)) == (None, 0, 0)


@given(st.lists(st.one_of(st.tuples(st.just("put"), keys, times), st.tuples(st.just("take"), st.just(0), times)
    , st.tuples(st.just("remove"), keys, st.just(0))), max_size=200))  # fmt: skip
def test_deadlines_are_those_of_a_plain_dict(steps: list[tuple[str, int, int]]) -> None:
    for moved_max in (1, MOVED_MAX):
        with patch.object(module, "MOVED_MAX", moved_max):
            compare_with_a_dict(steps)


def compare_with_a_dict(steps: list[tuple[str, int, int]]) -> None:
    known: Deadlines[int] = Deadlines()
    plain: dict[int, int] = {}
    for step, key, time in steps:
        match step:
            case "put":
                known.put(key, time)
                plain[key] = time
            case "remove":
                known.remove(key)
                plain.pop(key, None)
            case _:
                due = list(known.take_due(time))
                assert sorted(due) == sorted(key for key, at in plain.items() if at <= time)
                assert [plain[key] for key in due] == sorted(plain[key] for key in due)
                plain = {key: at for key, at in plain.items() if at > time}
        assert known.next() == min(plain.values(), default=None)
        assert len(known) == len(plain)
