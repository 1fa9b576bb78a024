"""A broker whose clients authenticate over TLS, next to an open listener for the test itself."""

from pathlib import Path

from broker_fixture import RunningBroker, free_port
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from identity_provider import AUDIENCE, ISSUER, key_set_text
from spark_scenario import Log
from tls_peer import Certificates

USER, PASSWORD = "alice", 's3cret "of", alice='
ANSWER_S = 15.0
MECHANISMS = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER"


class SecuredBroker:
    """One broker with the listeners PLAINTEXT, SSL (with a client certificate) and SASL_SSL, and one user."""

    def __init__(self, directory: Path) -> None:
        """Make the certificates. Do not start yet."""
        self.certificates = Certificates(directory, "127.0.0.1")
        server = directory / "server.pem"
        server.write_bytes(self.certificates.server.private_key_and_cert_chain_pem.bytes())
        keys = directory / "keys.json"
        keys.write_bytes(key_set_text())
        self.ports = {name: free_port() for name in ("PLAINTEXT", "SSL", "SASL_SSL")}
        settings = {
            "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in self.ports.items()),
            "inter.broker.listener.name": "PLAINTEXT",
            "ssl.keystore.location": str(server),
            "ssl.truststore.location": str(self.certificates.ca_file),
            "listener.name.ssl.ssl.client.auth": "required",
            "sasl.enabled.mechanisms": MECHANISMS,
            "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "sasl.oauthbearer.expected.issuer": ISSUER,
            "delegation.token.secret.key": "a long secret that makes the tokens of this test",
        }
        self.broker = RunningBroker(directory / "data", **settings)

    def start(self) -> "SecuredBroker":
        """Start the broker, and add the user."""
        self.broker.start()
        self.log = Log(self.address("PLAINTEXT"))
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
        added = UserScramCredentialUpsertion(USER, info, PASSWORD.encode())
        admin = AdminClient({"bootstrap.servers": self.log.bootstrap})
        admin.alter_user_scram_credentials([added])[USER].result(ANSWER_S)
        return self

    def address(self, listener: str) -> str:
        """Return host and port of a listener."""
        return f"127.0.0.1:{self.ports[listener]}"

    def options(self, mechanism: str, **others: str) -> dict[str, str]:
        """Return the options of a Spark client that authenticates with a mechanism over TLS."""
        return {
            "bootstrapServers": self.address("SASL_SSL"),
            "kafka.security.protocol": "SASL_SSL",
            "kafka.ssl.ca.location": str(self.certificates.ca_file),
            "kafka.sasl.mechanism": mechanism,
            **others,
        }

    def as_user(self, mechanism: str = "SCRAM-SHA-256", password: str = PASSWORD) -> dict[str, str]:
        """Return the options of the user."""
        return self.options(mechanism, **{"kafka.sasl.username": USER, "kafka.sasl.password": password})

    def as_certificate(self) -> dict[str, str]:
        """Return the options of a client with a certificate, and without SASL."""
        return {
            "bootstrapServers": self.address("SSL"),
            "kafka.security.protocol": "SSL",
            "kafka.ssl.ca.location": str(self.certificates.ca_file),
            "kafka.ssl.certificate.location": str(self.certificates.certificate_file),
            "kafka.ssl.key.location": str(self.certificates.key_file),
        }
