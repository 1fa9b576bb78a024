"""Offsets as JSON text: equal offsets give equal text; a restarted stream begins where its first micro-batch began."""

import json
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.spark.errors import UserError
from cordwood.spark.offsets import Offsets, batch_between, ends_of, first_end, from_json, to_json
from cordwood.storage.types import TopicPartition

PLACE = TopicPartition("t", 0)
places = st.builds(TopicPartition, st.sampled_from(["a", "b", "a.b"]), st.integers(0, 20))
offsets_of_places = st.dictionaries(places, st.integers(0, 1 << 62))


def test_partitions_are_sorted_as_numbers() -> None:
    offsets = {TopicPartition(topic, number): 7 for topic in ("b", "a") for number in (10, 9, 0)}
    assert json.dumps(to_json(offsets)) == '{"a": {"0": 7, "9": 7, "10": 7}, "b": {"0": 7, "9": 7, "10": 7}}'


@given(offsets_of_places, st.randoms())
def test_the_order_they_came_in_makes_no_difference(offsets: Offsets, rng: Random) -> None:
    shuffled = list(offsets.items())
    rng.shuffle(shuffled)
    text = json.dumps(to_json(offsets))
    assert json.dumps(to_json(dict(shuffled))) == text
    assert from_json(json.loads(text)) == offsets


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[1]", '[1] is not of the form {"topic": {"0": 23}}'),
        ('{"t": 5}', "topic t needs its partitions"),
        ('{"t": {}}', "topic t needs its partitions"),
        ('{"t": {"first": 5}}', "topic t has no partition 'first'"),
        ('{"t": {"0": "5"}}', 'partition 0 of topic t has "5" instead of a number'),
        ('{"t": {"0": true}}', "partition 0 of topic t has true instead of a number"),
    ],
)
def test_what_is_not_offsets_gets_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(UserError) as wrong:
        from_json(json.loads(text))
    assert sentence in str(wrong.value)


def kept(offset: int) -> dict[str, dict[str, int]]:
    return {"t": {"0": offset}}


def test_a_first_batch_that_is_run_again_begins_where_it_began() -> None:
    end = json.loads(json.dumps(first_end(kept(50), kept(100))))
    newer_start = kept(150)
    assert batch_between(newer_start, end) == ({PLACE: 50}, {PLACE: 100})
    assert batch_between(kept(100), end) == ({PLACE: 50}, {PLACE: 100})


def test_the_second_batch_begins_at_the_end_of_the_first() -> None:
    end_of_first = first_end(kept(50), kept(100))
    assert batch_between(end_of_first, kept(120)) == ({PLACE: 100}, {PLACE: 120})


def test_a_batch_of_nothing_stays_one() -> None:
    end_of_first = first_end(kept(50), kept(100))
    starts, ends = batch_between(end_of_first, end_of_first)
    assert starts == ends == ends_of(end_of_first) == {PLACE: 100}
