"""The persistent map against a dict, and how little of it a change copies and a comparison visits."""

import random
from collections.abc import Callable
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.cluster.metadata.persistent_map import (
    BRANCHES,
    DEPTH_MAX,
    LEAF_MAX,
    REMOVED,
    PersistentMap,
    Removed,
    bits_of_id,
    bits_of_name,
    bits_of_place,
    differences,
)


def few_bits(key: int) -> int:
    """Return bits that many keys share, so that a small map is deep."""
    return key % 7 * 0x0420_8421


CHANGES = st.dictionaries(st.integers(0, 2000), st.one_of(st.just(REMOVED), st.integers()), max_size=400)


@pytest.mark.parametrize("bits", [int, few_bits, lambda _key: 0], ids=["spread", "clustered", "all alike"])
@given(st.lists(CHANGES, max_size=6))
def test_it_is_what_a_dict_is_after_any_changes(
    bits: Callable[[int], int], rounds: list[dict[int, int | Removed]]
) -> None:
    mapping: PersistentMap[int, int] = PersistentMap(bits)
    model: dict[int, int] = {}
    for changes in rounds:
        before, was = mapping, dict(model)
        mapping = mapping.updated(changes)
        for key, value in changes.items():
            if isinstance(value, Removed):
                model.pop(key, None)
            else:
                model[key] = value
        assert (dict(mapping), dict(before)) == (model, was), "the former map is as it was"
        assert (len(mapping), set(mapping), sorted(mapping.values())) == (
            len(model),
            set(model),
            sorted(model.values()),
        )
        assert mapping == model
        assert mapping == PersistentMap(bits, reversed(model.items())), "however its entries came into it"
        assert (mapping == before) == (model == was)
        assert all(mapping.get(key) == model.get(key) and (key in mapping) == (key in model) for key in range(2000))
        changed = {key: (old, new) for key, old, new in differences(before, mapping)}
        assert changed.keys() >= {key for key in was.keys() | model.keys() if was.get(key) != model.get(key)}
        assert changed == {key: (was.get(key), model.get(key)) for key in changed}
        assert changed.keys() <= changes.keys()


def test_a_key_that_is_missing_is_an_error() -> None:
    assert PersistentMap(int, [(1, "a")])[1] == "a"
    with pytest.raises(KeyError):
        PersistentMap(int, [(1, "a")])[2]


def test_plain_mappings_are_compared_too() -> None:
    old, new = {"a": 1, "b": 2}, PersistentMap(bits_of_name, [("b", 2), ("c", 3)])
    assert sorted(differences(old, new)) == [("a", 1, None), ("c", None, 3)]


class CountedBits:
    """Bits of integers, with the number of times that they were asked for."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, key: int) -> int:
        self.count += 1
        return random.Random(key).getrandbits(64)


@pytest.mark.parametrize("size", [1000, 10_000, 100_000])
def test_a_change_of_one_entry_copies_and_compares_no_more_of_a_large_map(size: int) -> None:
    bits = CountedBits()
    before = PersistentMap(bits, ((key, str(key)) for key in range(size)))
    bits.count = 0
    after = before.updated({size // 2: "changed"})
    assert bits.count == 1
    copied = [node for node in nodes(after) if id(node) not in set(map(id, nodes(before)))]
    assert len(copied) <= DEPTH_MAX + 1
    assert sum(map(len, copied)) <= DEPTH_MAX * BRANCHES + LEAF_MAX
    assert list(differences(before, after)) == [(size // 2, str(size // 2), "changed")]


def test_a_map_that_shrinks_keeps_no_branches() -> None:
    mapping = PersistentMap(bits_of_name, ((f"topic-{number}", number) for number in range(5000)))
    for number in range(4990):
        mapping = mapping.updated({f"topic-{number}": REMOVED})
    assert len(nodes(mapping)) == 1
    assert len(mapping) == 10


def test_the_order_is_the_same_after_a_snapshot() -> None:
    mapping = PersistentMap(bits_of_name, ((f"topic-{number}", number) for number in range(5000)))
    assert list(PersistentMap(bits_of_name, mapping.items())) == list(mapping)


@pytest.mark.parametrize("partitions", [1, 10_000])
def test_topics_and_partitions_are_spread(partitions: int) -> None:
    rng = random.Random(1)
    ids = [UUID(int=rng.getrandbits(128), version=4) for _ in range(10_000 // partitions)]
    places = PersistentMap(bits_of_place, (((topic_id, index), 0) for topic_id in ids for index in range(partitions)))
    by_id = PersistentMap(bits_of_id, ((topic_id, 0) for topic_id in ids))
    assert max(len(node) for mapping in (places, by_id) for node in nodes(mapping)) <= LEAF_MAX


def nodes(mapping: PersistentMap[int, str]) -> list[object]:
    found, unvisited = [], [mapping._root]
    while unvisited:
        node = unvisited.pop()
        found.append(node)
        if isinstance(node, tuple):
            unvisited += node
    return found
