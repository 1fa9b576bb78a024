"""The partition of a key, compared with another implementation of the Java client's hash."""

from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as reference

from cordwood.cluster.http.records.partitioner import murmur2, partition_of


@given(st.binary(max_size=200))
def test_the_hash_is_that_of_kafkas_clients(key: bytes) -> None:
    assert murmur2(key) == reference(key) & 0xFFFFFFFF


@given(st.binary(max_size=100), st.integers(1, 1000))
def test_a_key_has_one_partition(key: bytes, count: int) -> None:
    assert partition_of(key, count) == (reference(key) & 0x7FFFFFFF) % count
    assert partition_of(key, count) == partition_of(key, count)
