"""Brokers that authenticate each other, as processes: replication, the quorum, strangers, and new certificates."""

import random
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import trustme
from broker_fixture import wait_until
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from secure_cluster import ANSWER_S, BROKERS, SecureCluster, answer_to, connected_to

from cordwood.client.blocking import BlockingConnection
from cordwood.client.security import client_security
from cordwood.cluster.config.settings import STANDARD_AUTHORIZER
from cordwood.cluster.kafka.on_behalf import encode_on_behalf
from cordwood.cluster.metadata.commands import BrokerId
from cordwood.cluster.metadata.raft.handshake import Handshake, Membership, PeerRole, new_nonce
from cordwood.cluster.security.principal import Identity
from cordwood.replication.frames import Open, ReadRequest, encode_open, encode_read

TOPIC = "t"
POSED = Open(2, UUID(int=7), 1, "")
BROKER_FRAMES = {
    "follower": encode_open(POSED),
    "range read": encode_read(POSED, ReadRequest(UUID(int=1), 0, 0, 1000)),
    "on behalf": encode_on_behalf(Identity()),
}
QUORUM_REFUSAL = 4
PASSWORDS = {"broker": "a password of brokers", "alice": "a password of alice"}
REFUSED = "it may not do CLUSTER_ACTION"


@contextmanager
def running(directory: Path, protocol: str, super_user: str, **settings: str) -> Iterator[SecureCluster]:
    cluster = SecureCluster(
        directory, protocol, authorizer_class_name=STANDARD_AUTHORIZER, super_users=super_user, **settings
    )
    try:
        yield cluster
    finally:
        cluster.stop()


class Client:
    """A super user's client. Every record is acknowledged by all replicas in sync, of which there are at least two."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._admin = AdminClient(config)
        self._producer = Producer({**config, "acks": "all", "linger.ms": 0})
        self.errors: list[str] = []

    def create_topic(self) -> None:
        created = self._admin.create_topics([NewTopic(TOPIC, 3, 3)], request_timeout=ANSWER_S)
        created[TOPIC].result(ANSWER_S)

    def produce(self, count: int = 30) -> None:
        for number in range(count):
            self._producer.produce(TOPIC, str(number), on_delivery=self._delivered)
        assert not self._producer.flush(ANSWER_S)

    def is_in_sync(self) -> bool:
        """Return whether every partition has three replicas in sync."""
        partitions = self._admin.list_topics(TOPIC, timeout=ANSWER_S).topics[TOPIC].partitions
        return len(partitions) == 3 and all(len(each.isrs) == len(BROKERS) for each in partitions.values())

    def await_sync(self) -> None:
        wait_until(self.is_in_sync, 2 * ANSWER_S, "three replicas in sync")

    def _delivered(self, error: Any, _record: Any) -> None:
        if error is not None:
            self.errors.append(str(error))


def quorum_hello() -> bytes:
    """Return the hello of an observer of any cluster."""
    sent: list[bytes] = []
    Handshake(
        Membership(BrokerId(7), PeerRole.OBSERVER, "", BROKERS, b""),
        BrokerId(1),
        new_nonce(random.Random(1)),
        sent.append,
    ).begin()
    return struct.pack("<I", len(sent[0])) + sent[0]


def check_strangers_of_tls(cluster: SecureCluster) -> None:
    """Check that neither a client without a certificate nor one of another user or authority passes for a broker."""
    others = trustme.CA()
    unknown = cluster.context("alice")
    others.issue_cert("127.0.0.1", common_name="broker").configure_cert(unknown)
    for frame in BROKER_FRAMES.values():
        with cluster.connected(1, None) as plain:
            # An alert of TLS at most.
            assert len(answer_to(plain, frame)) < 10
        with cluster.connected(1, "alice") as known:
            assert answer_to(known, frame) == b""
        with connected_to(cluster.brokers[1].port, unknown) as of_others:
            assert answer_to(of_others, frame) == b""
    quorum_port = cluster.quorum_ports[1]
    with connected_to(quorum_port, None) as plain:
        assert len(answer_to(plain, quorum_hello())) < 10
    with connected_to(quorum_port, unknown) as of_others:
        assert answer_to(of_others, quorum_hello()) == b""
    with connected_to(quorum_port, cluster.context("alice")) as known:
        assert b"User:alice is no broker of this cluster" in answer_to(known, quorum_hello())
    assert cluster.brokers[1].output.count(REFUSED) == len(BROKER_FRAMES)


@contextmanager
def producing(client: Client) -> Iterator[None]:
    """Produce without a pause until the end of the block."""
    ended = threading.Event()

    def go_on() -> None:
        while not ended.is_set():
            client.produce(10)

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def test_certificates_prove_brokers_and_are_replaced_while_they_replicate(tmp_path: Path) -> None:
    own = {"ssl_client_auth": "required", "ssl_principal_mapping_rules": r"RULE:CN=([^,]+).*/$1/"}
    with running(tmp_path, "SSL", "User:broker;User:admin", **own) as cluster:
        cluster.start()
        client = Client(cluster.client("admin"))
        client.create_topic()
        client.produce()
        client.await_sync()
        check_strangers_of_tls(cluster)
        with producing(client):
            before, cluster.authority = cluster.authority, trustme.CA()
            cluster.trust(before, cluster.authority)
            cluster.reload()
            for name in ("broker", "admin"):
                cluster.issue(name)
            cluster.reload()
            cluster.trust(cluster.authority)
            cluster.reload()
            # Every link of this broker is made anew, with the new certificates.
            cluster.brokers[3].terminate()
            cluster.start(3)
            # The client of before cannot connect to it: it trusts the former authority alone.
            Client(cluster.client("admin")).await_sync()
        client.produce()
        assert client.errors == []


@pytest.mark.parametrize(
    ("protocol", "mechanism"), [("SASL_SSL", "SCRAM-SHA-512"), ("SASL_PLAINTEXT", "SCRAM-SHA-256")]
)
def test_passwords_prove_brokers(tmp_path: Path, protocol: str, mechanism: str) -> None:
    own = {
        "sasl_mechanism_inter_broker_protocol": mechanism,
        "sasl_username": "broker",
        "sasl_password": PASSWORDS["broker"],
        "connections_max_reauth_ms": "3000",
    }
    with running(tmp_path, protocol, "User:broker", **own) as cluster:
        for broker in cluster.brokers.values():
            for user, password in PASSWORDS.items():
                broker.options += ["--add-scram", f"{mechanism}=[name={user},password={password}]"]
        cluster.start()
        security = {
            "security.protocol": protocol,
            "sasl.mechanism": mechanism,
            "ssl.ca.location": str(cluster.ca_file),
        }
        if not cluster.has_tls:
            del security["ssl.ca.location"]
        as_broker = {"sasl.username": "broker", "sasl.password": PASSWORDS["broker"]}
        client = Client({"bootstrap.servers": cluster.bootstrap, **security, **as_broker})
        client.create_topic()
        client.produce()
        client.await_sync()
        as_alice = client_security({**security, "sasl.username": "alice", "sasl.password": PASSWORDS["alice"]})
        context = as_alice.tls.context() if as_alice.tls is not None else None
        for frame in BROKER_FRAMES.values():
            with connected_to(cluster.brokers[1].port, context) as stranger:
                assert answer_to(stranger, frame) == b""
            with connected_to(cluster.brokers[1].port, context) as user:
                BlockingConnection(user, "alice").authenticate(as_alice)
                assert answer_to(user, frame) == b""
        assert cluster.brokers[1].output.count(REFUSED) == len(BROKER_FRAMES)
        assert client.errors == []
