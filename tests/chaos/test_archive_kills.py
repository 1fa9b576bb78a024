"""Kills of brokers that archive and compact: what their checks find, on made-up evidence."""

from pathlib import Path

import pytest

from cordwood.chaos.live import compacted_client
from cordwood.chaos.live.compacted_client import CompactedClient, Left, SentKey
from cordwood.chaos.live.restorations import _content_of
from cordwood.storage.flushed_offsets import SLOT_BYTES

KEY, OTHER = b"key-0", b"key-1"


@pytest.fixture
def client() -> CompactedClient:
    """Return a client that has written one key twice, and deleted another; it sends nothing."""
    client = CompactedClient("127.0.0.1:1", "compacted", 1)
    client._keys = {KEY: SentKey(2, {2: b"two", 3: b"unsure"}), OTHER: SentKey(4, {4: None})}
    client._records = {(0, 5): (KEY, b"one"), (0, 7): (KEY, b"two"), (1, 3): (OTHER, None)}
    return client


def kinds(client: CompactedClient, left: Left) -> list[str]:
    return [anomaly.kind for anomaly in client.differences(left)]


def test_the_last_acknowledged_value_and_a_later_one_are_right(client: CompactedClient) -> None:
    assert kinds(client, Left({(0, 7): (KEY, b"two")}, {KEY: b"two"})) == []
    assert kinds(client, Left({(0, 8): (KEY, b"unsure")}, {KEY: b"unsure", OTHER: None})) == []


def test_a_value_that_was_replaced_or_deleted_came_back(client: CompactedClient) -> None:
    assert kinds(client, Left({(0, 5): (KEY, b"one")}, {KEY: b"one"})) == ["came-back"]
    assert kinds(client, Left({}, {KEY: b"two", OTHER: b"three"})) == ["came-back"]


def test_a_key_without_its_value_is_lost(client: CompactedClient) -> None:
    assert kinds(client, Left()) == ["lost-write"]


def test_a_record_that_is_not_what_was_acknowledged_is_found(client: CompactedClient) -> None:
    assert kinds(client, Left({(0, 7): (KEY, b"others")}, {KEY: b"two"})) == ["changed-record"]


def test_half_of_the_keys_are_deleted_at_the_end() -> None:
    client = CompactedClient("127.0.0.1:1", "compacted", 1)
    assert len(client._retired()) == compacted_client.KEYS // 2


def test_flushed_offsets_are_compared_without_their_order(tmp_path: Path) -> None:
    one, other = tmp_path / "1" / "flushed", tmp_path / "2" / "flushed"
    for path, content in ((one, b"ab"), (other, b"ba")):
        path.parent.mkdir()
        path.write_bytes(b"".join(bytes([byte]) * SLOT_BYTES for byte in content))
    assert _content_of(one) == _content_of(other)
    plain = tmp_path / "log"
    plain.write_bytes(b"ba")
    assert _content_of(plain) == b"ba"
