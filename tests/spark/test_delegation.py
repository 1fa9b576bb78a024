"""Credentials that executors get of a user, and connections that are not shared among users."""

import pickle

from plain_broker import PlainBroker
from pyspark.sql.types import BinaryType, StructField, StructType
from tls_peer import serving

from cordwood.client.credentials import Mechanism, SaslCredentials
from cordwood.client.security import ClientSecurity
from cordwood.columnar.columns import Column, Columns
from cordwood.spark.batch_source import BatchReader
from cordwood.spark.client.pool import leased
from cordwood.spark.client.settings import Address, ClientSettings
from cordwood.spark.read_options import ReadMode, read_options
from cordwood.spark.sink_options import sink_options
from cordwood.spark.source import DefaultSource
from cordwood.spark.stream_source import StreamReader

PASSWORD = "s3cret"
VALUE = Columns((Column.VALUE,))
GIVEN = {
    "bootstrapServers": "localhost:1",
    "kafka.security.protocol": "SASL_PLAINTEXT",
    "kafka.sasl.mechanism": "PLAIN",
    "kafka.sasl.username": "alice",
    "kafka.sasl.password": PASSWORD,
}
DELEGATED = {**GIVEN, "delegationTokens": "true", "subscribe": "t"}


def is_sent(sent: object) -> bool:
    """Return whether the password is in what Spark sends."""
    return PASSWORD.encode() in pickle.dumps(sent)


def test_a_reader_with_tokens_is_sent_without_credentials() -> None:
    for mode, reader in ((ReadMode.BATCH, BatchReader), (ReadMode.STREAM, StreamReader)):
        assert not is_sent(reader(read_options(DELEGATED, mode), VALUE))
        own = {**GIVEN, "subscribe": "t"}
        assert is_sent(reader(read_options(own, mode), VALUE)), "without tokens, executors need the password"


def test_the_source_is_sent_with_its_options_only_to_the_driver() -> None:
    source = DefaultSource({**GIVEN, "subscribe": "t"})
    assert is_sent(source)
    source.reader(StructType([StructField("value", BinaryType())]))
    assert not is_sent(source)


def test_no_repr_of_options_has_a_password() -> None:
    assert PASSWORD not in repr(read_options({**GIVEN, "subscribe": "t"}))
    once = {"deliveryGuarantee": "exactly-once", "transactionalId": "x", "transactionVersion": "1", "topic": "t"}
    assert PASSWORD not in repr(sink_options({**GIVEN, **once}, [("value", "binary")], overwrite=False))


def test_connections_are_not_shared_among_users() -> None:
    broker = PlainBroker()
    with serving(broker) as port:
        address = Address("127.0.0.1", port)
        for user in ("alice", "alice", "bob"):
            security = ClientSecurity(sasl=SaslCredentials(Mechanism.PLAIN, user, "p"))
            with leased(address, ClientSettings((address,), security=security)) as connection:
                assert not connection.has_unanswered
    assert broker.users == ["alice", "bob"]
