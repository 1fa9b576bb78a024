"""Replication throttle: waits, turns of followers, and which replicas are throttled."""

import asyncio
from itertools import pairwise

import pytest
from peer_fixture import FOLLOWER, LeaderFixture
from replica_fixture import NOW_MS
from virtual_time import run

from cordwood.chaos.sim.values import batch_of
from cordwood.replication import frames
from cordwood.replication.frames import FlushReport
from cordwood.replication.partition import Partition
from cordwood.replication.throttle import RETRY_S_MAX, Charge, ReplicationThrottle, wait_s
from cordwood.replication.token_bucket import UNLIMITED, TokenBucket
from cordwood.replication.windows import PUSH_BYTES
from cordwood.storage.config import LogConfig

RATE = 10_000
SENT_MAX = 1000 * RATE
BOTH = Charge.LEADER | Charge.FOLLOWER


@pytest.mark.parametrize("rate", [1, RATE, 1 << 30])
@pytest.mark.parametrize("debt", [0, 1, 1 << 12])
def test_after_the_waits_there_are_tokens(rate: int, debt: int) -> None:
    bucket, now = TokenBucket(rate, tokens=-float(debt)), 0.0
    for _ in range(debt // rate + 3):
        assert 0 < wait_s(bucket) <= RETRY_S_MAX
        now += wait_s(bucket)
        if bucket.available(now) > 0:
            return
    raise AssertionError("the debt was never paid")


def test_without_a_rate_a_sender_looks_again_later() -> None:
    assert wait_s(TokenBucket(0)) == RETRY_S_MAX


class Follower:
    """A sender with endless records, 100 bytes at a time."""

    def __init__(self, broker_id: int, throttle: ReplicationThrottle, charge: Charge = Charge.LEADER) -> None:
        self.broker_id, self.sent, self.is_idle = broker_id, 0, False
        self._throttle, self._charge = throttle, charge

    def retry_in(self, delay_s: float) -> None:
        asyncio.get_running_loop().call_later(delay_s, self.send)

    def send(self) -> None:
        now = asyncio.get_running_loop().time()
        while not self.is_idle and self._throttle.allowed(self, self._charge, now) > 0:
            self._throttle.sent(self, self._charge, 100, now)
            self.sent += 100
            assert self.sent < SENT_MAX, "nothing limits it"


def test_followers_take_turns_at_the_leaders_rate() -> None:
    async def scenario() -> None:
        throttle = ReplicationThrottle()
        throttle.set_rates(RATE, {}, asyncio.get_running_loop().time())
        followers = [Follower(broker_id, throttle) for broker_id in range(3)]
        for follower in followers:
            follower.send()
        await asyncio.sleep(30)
        sent = [follower.sent for follower in followers]
        assert sum(sent) == pytest.approx(30 * RATE, rel=0.02)
        assert max(sent) - min(sent) <= 0.1 * max(sent)
        assert throttle.sent_bytes == sum(sent)
        # A follower without records passes its turn on, and a closed connection has none.
        followers[0].is_idle = True
        throttle.forget(followers[1])
        await asyncio.sleep(10)
        assert followers[2].sent - sent[2] == pytest.approx(10 * RATE, rel=0.1)

    run(scenario())


def test_each_follower_has_its_own_rate_below_that_of_the_leader() -> None:
    async def scenario() -> None:
        throttle = ReplicationThrottle()
        throttle.set_rates(10 * RATE, {1: RATE, 2: 2 * RATE}, asyncio.get_running_loop().time())
        followers = [Follower(1, throttle, BOTH), Follower(2, throttle, BOTH), Follower(3, throttle, BOTH)]
        for follower in followers:
            follower.send()
        await asyncio.sleep(30)
        sent = [follower.sent for follower in followers]
        assert sent == pytest.approx([30 * RATE, 60 * RATE, 210 * RATE], rel=0.05)
        throttle.set_rates(10 * RATE, {}, asyncio.get_running_loop().time())
        await asyncio.sleep(2)
        before = followers[0].sent
        await asyncio.sleep(30)
        assert followers[0].sent - before == pytest.approx(100 * RATE, rel=0.1)

    run(scenario())


def fill(partition: Partition, batches: int) -> int:
    """Append batches, and return the bytes of the log."""
    for _ in range(batches):
        partition.append(batch_of("x" * 900), NOW_MS)
    return partition.log.size


async def received(broker: LeaderFixture, seconds: int, stream: int = 0) -> list[int]:
    """Return the bytes of a stream in each second. The follower reports all of them as flushed immediately."""
    sizes = []
    for _ in range(seconds):
        size = 0
        for _ in range(100):
            await asyncio.sleep(0.01)
            rows = [row for row in broker.rows() if row.size]
            if rows:
                # A report without rows would have the leader look again.
                broker.send(frames.encode_reports(FlushReport(row.stream, -1, row.size) for row in rows))
            size += sum(row.size for row in rows if row.stream == stream)
        sizes.append(size)
    return sizes


@pytest.mark.parametrize("charge", [Charge.LEADER, Charge.FOLLOWER, BOTH])
def test_a_replica_that_is_added_is_copied_at_the_rate(charge: Charge) -> None:
    async def scenario() -> None:
        broker = LeaderFixture()
        rates = (RATE, {}) if charge is Charge.LEADER else (UNLIMITED, {FOLLOWER: RATE})
        broker.throttle.set_rates(*rates, asyncio.get_running_loop().time())
        size = fill(broker.lead(0, in_sync=False, charge=charge), 200)
        broker.follow(0)
        sizes = await received(broker, 15)
        assert sum(sizes) == pytest.approx(15 * RATE, rel=0.1)
        assert broker.throttle.sent_bytes == sum(sizes) < size
        assert all(abs(one - RATE) < 2_000 for one, _ in pairwise(sizes))

    run(scenario())


def test_a_replica_outside_the_isr_is_copied_at_the_rate_of_catching_up() -> None:
    async def scenario() -> None:
        broker = LeaderFixture(catchup_bytes_per_second=RATE)
        partition = broker.lead(0, in_sync=False)
        while partition.log.size < 2 * PUSH_BYTES:
            partition.append(batch_of("x" * 10_000), NOW_MS)
        broker.follow(0)
        assert sum(await received(broker, 15)) == pytest.approx(PUSH_BYTES + 15 * RATE, rel=0.05)

    run(scenario())


@pytest.mark.parametrize(("in_sync", "charge"), [(True, BOTH), (False, None), (False, Charge.NONE)])
def test_no_other_replica_waits_for_the_throttle(in_sync: bool, charge: Charge | None) -> None:
    async def scenario() -> None:
        broker = LeaderFixture()
        broker.throttle.set_rates(RATE, {FOLLOWER: RATE}, asyncio.get_running_loop().time())
        fill(broker.lead(0, in_sync=False, charge=BOTH), 200)
        size = fill(broker.lead(1, in_sync=in_sync, charge=charge), 200)
        broker.follow(0)
        broker.follow(1)
        assert await received(broker, 1, stream=1) == [size]

    run(scenario())


def test_pushes_to_replicas_in_and_outside_of_the_isr_at_the_same_time_have_the_bytes_of_one() -> None:
    async def scenario() -> None:
        broker = LeaderFixture(LogConfig())
        for index in range(2):
            partition = broker.lead(index, in_sync=index == 0)
            while partition.log.size < PUSH_BYTES - 50_000:
                partition.append(batch_of("x" * 10_000), NOW_MS)
            broker.follow(index)
        await broker.turn()
        pushes = [frames.decode_push(frame) for frame in broker.channel.take()]
        (in_sync,), (other,) = ([row.size for row, _ in push] for push in pushes[:2])
        assert PUSH_BYTES - 50_000 <= in_sync < in_sync + other <= PUSH_BYTES + 20_000

    run(scenario())


def test_the_earlier_of_two_times_to_send_again_counts() -> None:
    async def scenario() -> None:
        broker, loop = LeaderFixture(), asyncio.get_running_loop()
        broker.throttle.set_rates(UNLIMITED, {FOLLOWER: 1}, loop.time())
        fill(broker.lead(0, in_sync=False, charge=Charge.FOLLOWER), 10)
        broker.follow(0)
        await asyncio.sleep(0.1)
        assert not sum(row.size for row in broker.rows()), "it is held back for a second"
        broker.throttle.set_rates(UNLIMITED, {}, loop.time())
        (stream,) = broker.partition(0).leader.streams
        stream.connection.retry_in(0.1)
        stream.connection.retry_in(0.5)
        await asyncio.sleep(0.15)
        assert sum(row.size for row in broker.rows())

    run(scenario())
