"""A pytest plugin for kafka-python's suite: where it starts a Kafka broker with SASL or TLS, it gets one of ours."""

from pathlib import Path
from typing import Any

import trustme
from broker_fixture import RunningBroker
from kafka import KafkaAdminClient
from test.integration import fixtures

ADMIN = "admin"


class Fixture(fixtures.KafkaFixture):
    """The suite's own fixture with another process."""

    def open(self) -> None:
        """Do nothing: `start` starts everything."""
        self.start()

    def start(self) -> None:
        """Start a broker whose only listener for clients has the fixture's protocol and mechanism."""
        if self.running:
            return
        place = Path(str(self.tmp_dir or fixtures.py.path.local.mkdtemp()))
        broker = RunningBroker(place / "data", num_partitions=str(self.partitions))
        self.host, self.port = "127.0.0.1", broker.port
        broker.settings |= {
            "node.id": str(self.broker_id),
            "listeners": f"{self.transport}://{broker.bootstrap}",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "allow.everyone.if.no.acl.found": "true",
        }
        if self.sasl_enabled:
            broker.settings |= {
                "sasl.enabled.mechanisms": self.sasl_mechanism,
                "sasl.mechanism.inter.broker.protocol": self.sasl_mechanism,
                "sasl.username": self.broker_user,
                "sasl.password": self.broker_password,
                "sasl.plain.unencrypted.listeners": self.transport,
            }
            broker.options += ["--add-scram", f"{self.broker_user}={self.broker_password}"]
        if self.ssl_enabled:
            broker.settings |= self._certificates(place)
        self.child = broker.start()
        self.child.dump_logs = lambda: None
        self.running = True

    def get_topic_names(self) -> list[str]:
        """List the topics as Kafka's command would."""
        with KafkaAdminClient(**self._enrich_client_params({})) as admin:
            return list(admin.list_topics())

    def dump_logs(self) -> None:
        """Do nothing: the log is a file."""

    def stop(self) -> None:
        """Stop the broker."""
        if self.running:
            self.child.stop()
            self.running = False

    def close(self) -> None:
        """Stop the broker."""
        self.stop()

    def _certificates(self, place: Path) -> dict[str, Any]:
        self.ssl_dir = str(place)
        authority = trustme.CA()
        authority.cert_pem.write_to_path(str(place / "ca-cert"))
        authority.issue_cert("localhost", "127.0.0.1").private_key_and_cert_chain_pem.write_to_path(
            str(place / "server.pem")
        )
        return {"ssl.keystore.location": str(place / "server.pem"), "ssl.truststore.location": str(place / "ca-cert")}


def pytest_configure() -> None:
    """Put the fixture in the place of the suite's, before its modules import it."""
    fixtures.KafkaFixture = Fixture
