"""The start offsets of a stream, kept in the end offset of its first micro-batch: a restart reads the same records."""

import json

from cordwood.spark.initial import batch_between, ends_of, first_end
from cordwood.spark.ranges import TopicPartition

PLACE = TopicPartition("t", 0)


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
