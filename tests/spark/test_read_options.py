"""Reader options: each is parsed, or refused with a sentence that names the fix."""

import pickle
from pathlib import Path

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict

from cordwood.columnar.ranges import Isolation
from cordwood.spark import sink_options
from cordwood.spark.admission import BatchLimits
from cordwood.spark.errors import WrongOption
from cordwood.spark.positions import AT_EARLIEST, AT_LATEST, OffsetPosition, TimestampPosition
from cordwood.spark.read_options import KNOWN, ReadMode, ReadOptions, read_options
from cordwood.spark.subscription import ByName, ByPartition, ByPattern
from cordwood.storage.types import TopicPartition

DOCS = Path(__file__).resolve().parents[2] / "docs" / "spark.md"

WHERE = {"bootstrapServers": "one:9092, two:19092"}
WHAT = {"subscribe": "t"}
FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)


def parsed(mode: ReadMode = ReadMode.STREAM, **given: str) -> ReadOptions:
    return read_options(CaseInsensitiveDict({**WHERE, **WHAT, **given}), mode)


def refused(given: dict[str, str], mode: ReadMode | None = ReadMode.STREAM) -> str:
    with pytest.raises(WrongOption) as wrong:
        read_options(CaseInsensitiveDict(given), mode)
    return str(wrong.value)


def test_kafkas_names_and_ours_mean_the_same_in_any_case() -> None:
    ours = parsed(isolation="read_uncommitted", clientId="me", requestTimeoutMs="5s")
    kafkas = read_options(
        {
            "KAFKA.bootstrap.SERVERS": "one:9092,two:19092",
            "Subscribe": "t",
            "kafka.isolation.level": "READ_UNCOMMITTED",
            "kafka.client.id": "me",
            "kafka.request.timeout.ms": "5000",
        }
    )
    assert ours == kafkas
    assert [str(address) for address in ours.client.bootstrap] == ["one:9092", "two:19092"]
    assert ours.client.isolation is Isolation.READ_UNCOMMITTED


def test_what_is_committed_is_read_unless_one_asks_for_more() -> None:
    assert parsed().client.isolation is Isolation.READ_COMMITTED


def test_topics_are_named_matched_or_assigned() -> None:
    assert parsed(subscribe="a, b").subscription == ByName(frozenset({"a", "b"}))
    assert read_options({**WHERE, "subscribePattern": "a.*"}).subscription == ByPattern("a.*")
    assigned = read_options({**WHERE, "assign": '{"t": [1, 0]}'})
    assert assigned.subscription == ByPartition(frozenset({FIRST, SECOND}))


def test_a_batch_begins_at_the_earliest_and_a_stream_at_the_latest() -> None:
    assert parsed(ReadMode.BATCH).starting.everywhere == AT_EARLIEST
    assert parsed(ReadMode.BATCH).ending.everywhere == AT_LATEST
    assert parsed(ReadMode.STREAM).starting.everywhere == AT_LATEST


def test_offsets_are_named_for_each_partition() -> None:
    positions = parsed(startingOffsets='{"t": {"0": 23, "1": -2}}').starting
    assert positions.of({FIRST, SECOND}) == {FIRST: OffsetPosition(23), SECOND: AT_EARLIEST}


def test_a_time_wins_over_times_for_each_partition_and_these_over_offsets() -> None:
    times = {"startingOffsetsByTimestamp": '{"t": {"0": 5}}', "startingOffsets": "earliest"}
    assert parsed(**times).starting.named == {FIRST: TimestampPosition(5)}
    assert parsed(startingTimestamp="7", **times).starting.everywhere == TimestampPosition(7)


@pytest.mark.parametrize(("delay", "milliseconds"), [("1h", 3_600_000), ("15 min", 900_000), ("3s", 3000), ("20", 20)])
def test_times_are_written_as_people_write_them(delay: str, milliseconds: int) -> None:
    limits = parsed(minOffsetsPerTrigger="10", maxTriggerDelay=delay).limits
    assert limits == BatchLimits(records_min=10, delay_ms_max=milliseconds)


def test_options_travel_to_the_executors() -> None:
    options = parsed(startingOffsets='{"t": {"0": 23}}')
    assert pickle.loads(pickle.dumps(options)) == options


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"subscrib": "t"}, "there is no option subscrib: did you mean subscribe?"),
        ({"kafka.isolation.levl": "x"}, "did you mean kafka.isolation.level?"),
        ({"zzz": "1"}, "there is no option zzz: there are "),
        ({"assign": '{"t": [0]}'}, "subscribe and assign are given: select what to read with one of"),
        ({"subscribe": " , "}, "subscribe names no topic"),
        ({"bootstrapServers": "one:port"}, "bootstrapServers is 'one:port': "),
        ({"kafka.bootstrap.servers": "other:1"}, "are the same option with different values"),
        ({"kafka.group.id": "g"}, "option kafka.group.id: a reader has no consumer group"),
        ({"kafka.security.protocol": "SASL_SSL"}, "kafka.sasl.mechanism is missing"),
        ({"kafka.security.protocol": "SASL"}, "kafka.security.protocol is 'SASL': it can be PLAINTEXT, SSL"),
        ({"kafka.ssl.ca.location": "ca.pem"}, "kafka.ssl.ca.location has no effect: kafka.security.protocol is PLAIN"),
        ({"kafka.sasl.kerberos.service.name": "k"}, "GSSAPI is not supported"),
        ({"kafka.sasl.mechanim": "PLAIN"}, "did you mean kafka.sasl.mechanism?"),
        ({"delegationTokens": "true"}, "delegationTokens needs a listener with SASL"),
        ({"isolation": "serializable"}, "it can be read_committed or read_uncommitted"),
        ({"failOnDataLoss": "no"}, "failOnDataLoss is 'no': it can be true or false"),
        ({"minPartitions": "0"}, "minPartitions is '0': it must be a whole number, 1 or more"),
        ({"maxOffsetsPerTrigger": "1.5"}, "maxOffsetsPerTrigger is '1.5': it must be a whole number"),
        ({"maxTriggerDelay": "soon", "minOffsetsPerTrigger": "1"}, "it must be a time, such as 500ms, 30s, 15m or 1h"),
        ({"maxTriggerDelay": "1m"}, "give both or neither"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "3"}, "the minimum must not be larger than the maximum"),
        ({"startingOffsets": "sometime"}, 'which is not JSON'),
        ({"startingOffsets": '{"t": 5}'}, "startingOffsets: topic t needs its partitions"),
        ({"startingOffsets": '{"t": {"0": -3}}'}, "must be 0 or more, or -2 for the earliest, or -1 for the latest"),
        ({"startingOffsetsByTimestamp": '{"t": {"0": -1}}'}, "startingOffsetsByTimestamp has -1 for t-0"),
        ({"startingTimestamp": "-1"}, "startingTimestamp is '-1'"),
        ({"endingOffsets": "latest"}, "endingOffsets is for spark.read, and this is spark.readStream"),
        ({"path": "somewhere"}, "there is no path to load"),
    ],
)  # fmt: skip
def test_a_wrong_option_of_a_stream_gets_a_sentence(given: dict[str, str], sentence: str) -> None:
    assert sentence in refused({**WHERE, **WHAT, **given})


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"maxOffsetsPerTrigger": "5"}, "maxOffsetsPerTrigger is for spark.readStream, and this is spark.read"),
        ({"startingOffsets": "latest"}, "startingOffsets cannot be latest here: it can be earliest, or an offset"),
        ({"endingOffsets": "earliest"}, "endingOffsets cannot be earliest here: it can be latest"),
        ({"startingOffsets": '{"t": {"0": -1}}'}, "must be 0 or more, or -2 for the earliest"),
        (
            {"startingOffsets": '{"t": {"0": 9}}', "endingOffsets": '{"t": {"0": 3}}'},
            "startingOffsets has 9 for t-0, which is after 3 of endingOffsets",
        ),
    ],
)
def test_a_wrong_option_of_a_batch_gets_a_sentence(given: dict[str, str], sentence: str) -> None:
    assert sentence in refused({**WHERE, **WHAT, **given}, ReadMode.BATCH)


def test_what_is_missing_is_asked_for() -> None:
    assert "bootstrapServers is missing" in refused(WHAT)
    assert "none is given: select what to read with one of subscribe, subscribePattern, assign" in refused(WHERE)


def test_positions_must_name_what_is_read_and_nothing_else() -> None:
    positions = parsed(startingOffsets='{"t": {"0": 23}}').starting
    with pytest.raises(WrongOption, match="startingOffsets lacks t-1"):
        positions.of({FIRST, SECOND})
    with pytest.raises(WrongOption, match="startingOffsets names t-0, which is not among"):
        parsed(startingOffsets='{"t": {"0": 23, "1": 5}}').starting.of({SECOND})


@pytest.mark.parametrize("name", sorted({*KNOWN, *sink_options.KNOWN} - {"checkpointLocation"}))
def test_every_option_is_documented(name: str) -> None:
    assert name in DOCS.read_text()
