"""Certificates of the measured brokers, for lines over TLS: one key for all of them, from a CA that clients trust."""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from cordwood.client.security import ClientSecurity, client_security
from cordwood.cluster.security.certificates import issue, make_ca

DAYS = 2


@dataclass(frozen=True, slots=True)
class BenchCertificates:
    """PEM files: the CA's certificate, and a broker's key with its certificate."""

    ca: Path
    broker: Path

    @classmethod
    def make(cls, directory: Path) -> Self:
        """Make them in a directory."""
        now = datetime.now(UTC)
        ca = make_ca("benchmark", DAYS, now)
        broker = issue(ca, "broker", ["127.0.0.1"], DAYS, now=now)
        made = cls(directory / "ca.pem", directory / "broker.pem")
        directory.mkdir(parents=True)
        made.ca.write_bytes(ca.certificate_pem)
        made.broker.write_bytes(broker.key_pem + broker.certificate_pem)
        return made

    def broker_settings(self) -> dict[str, str]:
        """Return the settings of a broker, by the keys that Kafka and Cordwood share."""
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.broker),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.ca),
            "inter.broker.listener.name": "SSL",
        }

    def client(self) -> ClientSecurity:
        return client_security({"security.protocol": "SSL", "ssl.ca.location": str(self.ca)})
