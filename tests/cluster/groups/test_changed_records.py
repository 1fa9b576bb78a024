"""The changed records of a group, and which of its records the log has."""

from cordwood.cluster.groups.changed_records import ChangedRecords
from cordwood.cluster.groups.consumer.formats import RecordKey, RecordType, encode_key, place_of, read_key
from cordwood.storage.steps import Steps, at_once

NAMES = [f"member-{number}" for number in (3, 1, 4, 15, 9, 2, 6, 5, 35, 8)]


def value(content: bytes | None) -> Steps[bytes | None]:
    yield
    return content


def keys(records: ChangedRecords[RecordKey]) -> list[str]:
    encoded = [encode_key("g", RecordKey(RecordType.MEMBER_METADATA, name)) for name in NAMES]
    return [NAMES[encoded.index(key)] for key in records.encoded_keys()]


def test_records_are_deleted_in_the_order_of_their_first_writes() -> None:
    # Not in the order of a set, which differs from process to process: simulated runs must not.
    records = ChangedRecords("g", encode_key, read_key, place_of)
    for name in NAMES:
        records.change(RecordKey(RecordType.MEMBER_METADATA, name))
        at_once(records.take(lambda _: value(b"value")))
    assert keys(records) == NAMES
    records.change(RecordKey(RecordType.MEMBER_METADATA, NAMES[0]))
    at_once(records.take(lambda _: value(b"another")))
    assert keys(records) == NAMES
    records.change(RecordKey(RecordType.MEMBER_METADATA, NAMES[1]))
    assert len(at_once(records.take(lambda _: value(None)))) == 1
    assert keys(records) == [NAMES[0], *NAMES[2:]]
