"""Shared reads of many consumers at one log's end: one read in each event-loop iteration."""

import asyncio

from log_fixture import LogFixture

from cordwood.cluster.kafka.codec import RequestHead
from cordwood.cluster.kafka.fetch_response import Row, encode
from cordwood.cluster.kafka.shared_pieces import Shared
from cordwood.storage.slices import Slice
from cordwood.storage.steps import at_once

HEAD = RequestHead(1, 12, 7, "", 0)


def all_of(log: LogFixture) -> Slice:
    found = log.log.slice(0, 1 << 20, log.end)
    assert found is not None
    return found


def test_the_same_stretch_is_read_once_in_a_turn() -> None:
    async def story() -> None:
        log, shared = LogFixture().append("a", "b").flush(), Shared()
        first = shared.read(all_of(log))
        assert first == log.read(0)
        assert shared.read(all_of(log)) is first
        log.append("c").flush()
        assert shared.read(all_of(log)) == log.read(0) != first

    asyncio.run(story())


def test_what_was_read_is_forgotten_with_the_turn() -> None:
    async def story() -> None:
        log, shared = LogFixture().append("a", "old").flush(), Shared()
        before = shared.read(all_of(log))
        await asyncio.sleep(0)
        # The new batch is as long as the truncated one.
        log.truncate(1).append("new").flush()
        after = shared.read(all_of(log))
        assert before is not None
        assert after is not None
        assert len(before) == len(after)
        assert (b"old" in before, b"new" in after) == (True, True)

    asyncio.run(story())


def test_what_is_not_in_memory_is_left_to_its_sender() -> None:
    async def story() -> None:
        log = LogFixture().append("a").flush()
        found = all_of(log)
        log.disk.cool()
        assert Shared().read(found) is None
        assert found.size > 0

    asyncio.run(story())


def test_an_answer_is_the_same_whether_its_batches_were_read_or_not() -> None:
    log = LogFixture().append("a", "b").flush()
    rows = [Row(("t", 3)), Row(("t", 4))]
    for row in rows:
        row.high_watermark, row.log_start, row.slice = log.end, log.start, all_of(log)
    chunks = at_once(encode(HEAD, 9, rows))
    joined = b"".join(chunk if isinstance(chunk, bytes) else bytes(chunk.next_piece()) for chunk in chunks)
    for row in rows:
        row.slice, row.piece = all_of(log), log.read(0)
    assert at_once(encode(HEAD, 9, rows)) == [joined]
