"""The memory pools of a broker: a common limit on their sum, and a reserve for each."""

import random

import pytest

from cordwood.cluster.config.settings import Settings
from cordwood.cluster.kafka.wire import OTHER_BYTES_MAX, decoded_bytes
from cordwood.cluster.resources.memory import MIB, Memory, MemoryPool
from cordwood.storage.budget import UNPACKED_BYTES_MAX

SUM_BYTES_MAX, COMMON_SUM_BYTES_MAX = 132 * MIB, 96 * MIB
LARGEST = 100 * MIB


@pytest.fixture
def memory() -> Memory:
    return Memory.of(LARGEST, 200_000)


def counted(memory: Memory) -> list[MemoryPool]:
    return [pool for pool in memory if pool is not memory.large]


@pytest.mark.parametrize("seed", range(20))
def test_together_the_pools_never_have_more_than_their_common_limit(memory: Memory, seed: int) -> None:
    rng, pools = random.Random(seed), counted(memory)
    for _ in range(2000):
        pool, size = rng.choice(pools), rng.choice((1, 1000, MIB, 16 * MIB))
        if pool.has_room(size):
            pool.used += size
        elif rng.random() < 0.1:
            pool.used = 0
        assert sum(each.used for each in pools) <= COMMON_SUM_BYTES_MAX


def test_a_batch_of_the_largest_size_can_be_decompressed_beside_what_each_other_pool_has_alone(memory: Memory) -> None:
    for pool in counted(memory):
        pool.used = pool.own
    memory.decoding.used = 0
    assert memory.decoding.has_room(UNPACKED_BYTES_MAX)


def test_whatever_the_others_hold_each_pool_has_room_of_its_own(memory: Memory) -> None:
    pools = counted(memory)
    for pool in pools:
        pool.used = 0
        for other in pools:
            while other is not pool and other.has_room(MIB):
                other.used += MIB
        assert pool.own
        assert pool.has_room(pool.own)


def test_the_largest_request_has_room_beside_what_each_other_pool_has_alone(memory: Memory) -> None:
    for pool in counted(memory):
        pool.used = pool.own
    memory.receive.used = 0
    assert not memory.receive.has_room(LARGEST)
    assert memory.receive.has_room(LARGEST, memory.receive.above)
    assert not memory.is_crowded
    memory.receive.used = LARGEST
    assert memory.is_crowded
    assert sum(pool.used for pool in counted(memory)) <= SUM_BYTES_MAX


def test_the_largest_request_of_a_broker_that_is_not_configured_is_kafkas() -> None:
    assert Settings().socket_request_max_bytes == LARGEST


def test_the_largest_request_but_a_produce_is_handled_beside_what_each_other_pool_has_alone(memory: Memory) -> None:
    for pool in counted(memory):
        pool.used = pool.own
    memory.receive.used = OTHER_BYTES_MAX + MIB
    memory.pending.used = 0
    assert memory.pending.has_room(decoded_bytes(OTHER_BYTES_MAX))
