"""Reads and writes of a cluster whose clients authenticate, and delegation tokens in place of credentials."""

import pickle
import time
from collections.abc import Iterator, Mapping

import pyarrow as pa
import pytest
from identity_provider import claims, token
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import BinaryType, StructField, StructType
from secured_broker import PASSWORD, USER, SecuredBroker
from spark_scenario import STREAM_S, read_batch

from cordwood.columnar.columns import Column, Columns
from cordwood.spark.batch_source import BatchReader
from cordwood.spark.client.delegation import for_executors
from cordwood.spark.errors import RequestRefused
from cordwood.spark.read_options import ReadMode, read_options
from cordwood.spark.sink import BatchSink
from cordwood.spark.sink_options import sink_options
from cordwood.spark.source import DefaultSource

VALUE = Columns((Column.VALUE,))
QUICK = {"retryTimeoutMs": "2s"}


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    """Run one broker for all tests."""
    broker = SecuredBroker(tmp_path_factory.mktemp("closed")).start()
    try:
        yield broker
    finally:
        broker.broker.stop()


def read(options: Mapping[str, str], **given: str) -> list[str]:
    """Return the values of a batch read, sorted, without Spark."""
    rest = {name: value for name, value in options.items() if name != "bootstrapServers"}
    return read_batch(options["bootstrapServers"], **rest, **given)


def write(options: Mapping[str, str], topic: str, *values: str) -> None:
    """Write values as one task does, without Spark."""
    found = sink_options({**options, "topic": topic}, [("value", "string")], overwrite=False)
    rows = pa.record_batch({"value": list(values)})
    assert BatchSink(found).write(iter([rows])).records == len(values)


def bearer(closed: SecuredBroker) -> dict[str, str]:
    text = token(claims(round(time.time() * 1000)))
    return closed.options("OAUTHBEARER", **{"kafka.sasl.oauthbearer.token": text})


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER", "a certificate"])
def test_each_mechanism_reads_and_writes(closed: SecuredBroker, mechanism: str) -> None:
    of = {"OAUTHBEARER": lambda: bearer(closed), "a certificate": closed.as_certificate}
    options = of.get(mechanism, lambda: closed.as_user(mechanism))()
    topic = closed.log.topic()
    write(options, topic, "a", "b")
    assert read(options, subscribe=topic) == ["a", "b"]


def test_the_login_of_kafkas_own_clients(closed: SecuredBroker) -> None:
    escaped = PASSWORD.replace('"', '\\"')
    login = f'x.ScramLoginModule required username="{USER}" password="{escaped}";'
    topic = closed.log.topic()
    assert read(closed.options("SCRAM-SHA-256", **{"kafka.sasl.jaas.config": login}), subscribe=topic) == []


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_wrong_password_is_refused_at_once(closed: SecuredBroker, mechanism: str) -> None:
    options, topic = closed.as_user(mechanism, "s3cret"), closed.log.topic()
    for use in (lambda: read(options, subscribe=topic), lambda: write(options, topic, "a")):
        with pytest.raises(RequestRefused, match=f"authentication with {mechanism} failed") as failed:
            use()
        assert "s3cret" not in str(failed.value)


def test_a_mechanism_that_the_user_has_no_credential_of(closed: SecuredBroker) -> None:
    with pytest.raises(RequestRefused, match="authentication with SCRAM-SHA-512 failed"):
        read(closed.as_user("SCRAM-SHA-512"), subscribe="t")


def test_an_expired_bearer_token_is_refused(closed: SecuredBroker) -> None:
    old = token(claims(round(time.time() * 1000) - 3_600_000))
    with pytest.raises(RequestRefused, match="OAUTHBEARER") as failed:
        read(closed.options("OAUTHBEARER", **{"kafka.sasl.oauthbearer.token": old}), subscribe="t")
    assert old not in str(failed.value)


def test_without_a_certificate_or_with_the_wrong_ca_there_is_no_connection(closed: SecuredBroker) -> None:
    options = closed.as_certificate()
    del options["kafka.ssl.certificate.location"], options["kafka.ssl.key.location"]
    with pytest.raises(RequestRefused, match="refused the client's certificate"):
        read(options, subscribe="t", **QUICK)
    options = {**closed.as_user(), "kafka.ssl.ca.location": "probe"}
    with pytest.raises(RequestRefused, match=r"ssl\.ca\.location must have the CA"):
        read(options, subscribe="t", **QUICK)


def test_what_executors_get_has_no_credentials_of_the_user(closed: SecuredBroker) -> None:
    topic = closed.log.topic()
    closed.log.append(topic, "a")
    given = {**closed.as_user(), "delegationTokens": "true", "subscribe": topic}
    reader = BatchReader(read_options(given, ReadMode.BATCH), VALUE)
    sent = pickle.dumps((reader, reader.partitions()))
    assert PASSWORD.encode() not in sent
    copy, [part] = pickle.loads(sent)
    assert [value.as_py() for table in copy.read(part) for value in table.column(0)] == [b"a"]
    source = DefaultSource(given)
    assert PASSWORD.encode() in pickle.dumps(source), "the driver's own copy has all options"
    source.reader(StructType([StructField("value", BinaryType())]))
    assert PASSWORD.encode() not in pickle.dumps(source)


def test_a_delegation_token_is_used_again(closed: SecuredBroker) -> None:
    client = read_options({**closed.as_user(), "delegationTokens": "true", "subscribe": "t"}).client
    first = for_executors(client).security.sasl
    assert first is not None
    assert first.is_delegation_token
    # Another process knows nothing of the first one's token but what brokers say.
    other = read_options({**closed.as_user(), "delegationTokens": "true", "subscribe": "t", **QUICK}).client
    assert for_executors(other).security.sasl == first


def test_a_client_with_a_token_passes_it_on(closed: SecuredBroker) -> None:
    client = read_options({**closed.as_user(), "delegationTokens": "true", "subscribe": "t"}).client
    given = for_executors(client)
    assert for_executors(given) == given


def test_librdkafka_names_a_token_in_place_of_a_user_and_needs_its_secret(closed: SecuredBroker) -> None:
    topic = closed.log.topic()
    client = read_options({**closed.as_user(), "delegationTokens": "true", "subscribe": "t"}).client
    given = for_executors(client).security.for_librdkafka()
    assert given["sasl.username"].startswith("delegation-token:")
    named = {"kafka.sasl.username": given["sasl.username"], "kafka.sasl.password": given["sasl.password"]}
    assert read(closed.options("SCRAM-SHA-256", **named), subscribe=topic) == []
    unnamed = given["sasl.username"].removeprefix("delegation-token:")
    for wrong in ({"kafka.sasl.password": "wrong"}, {"kafka.sasl.username": unnamed}):
        with pytest.raises(RequestRefused, match="authentication with SCRAM-SHA-256 failed"):
            read(closed.options("SCRAM-SHA-256", **{**named, **wrong}), subscribe=topic)


def test_spark_reads_and_writes_with_delegation_tokens(
    closed: SecuredBroker, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> None:
    source, target = closed.log.topic(2), closed.log.topic(2)
    closed.log.append(source, *"abc")
    options = {**closed.as_user(), "delegationTokens": "true"}
    stream = spark.readStream.format("cordwood").options(**options, subscribe=source, startingOffsets="earliest").load()
    writer = stream.select("value").writeStream.format("cordwood").options(**options, topic=target)
    writer = writer.options(
        deliveryGuarantee="exactly-once", checkpointLocation=str(tmp_path_factory.mktemp("checkpoint"))
    )
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(STREAM_S)
    table = spark.read.format("cordwood").options(**options, subscribe=target).load()
    assert sorted(row.value for row in table.collect()) == [b"a", b"b", b"c"]
    assert PASSWORD not in table._jdf.queryExecution().toString()


def test_sparks_errors_have_no_password(closed: SecuredBroker, spark: SparkSession) -> None:
    table = spark.read.format("cordwood").options(**closed.as_user(password="s3cret"), subscribe="t").load()
    with pytest.raises(PySparkException, match="authentication with SCRAM-SHA-256 failed") as failed:
        table.collect()
    assert "s3cret" not in str(failed.value)
