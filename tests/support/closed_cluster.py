"""Three brokers that are closed: clients, brokers and browsers have to prove who they are, and ACLs decide."""

import json
import ssl
import time
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import trustme
from broker_fixture import free_port
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from identity_provider import AUDIENCE, ISSUER, claims, curve_key, key_set_text, rsa_key, token
from sasl_client import SaslClient
from secure_cluster import BROKERS, HOST, SecureCluster

from cordwood.cluster.config.settings import STANDARD_AUTHORIZER

ADMIN = "admin"
"""A super user, by a certificate."""
BYSTANDER, OWNER = "bystander", "owner"
SECRETS = {
    BYSTANDER: "planted-password-of-bystander",
    OWNER: "planted-password-of-owner",
    "key of the broker": "planted-password-of-the-key",
    "tokens": "planted-secret-of-delegation-tokens",
    "quorum": "planted-secret-of-the-quorum",
    "link": "planted-password-of-links",
}
"""Secrets that are in the configuration or in the metadata, and must be shown nowhere."""
CLIENTS, UNENCRYPTED = "CLIENTS", "UNENCRYPTED"
KEY = curve_key("P-256", "now")
RULES = r"RULE:CN=([a-z]+),.*/$1/"


class ClosedCluster(SecureCluster):
    """The listener INTERNAL requires certificates, CLIENTS has TLS and SASL, UNENCRYPTED has SASL alone."""

    def __init__(self, directory: Path) -> None:
        self.keys = directory / "keys.json"
        self.keys.write_bytes(key_set_text(rsa_key(), KEY))
        self.ports = {name: {broker_id: free_port() for broker_id in BROKERS} for name in (CLIENTS, UNENCRYPTED)}
        self.http_ports = {broker_id: free_port() for broker_id in BROKERS}
        super().__init__(directory, "SSL")
        users = directory / "users"
        users.write_text("".join(f"SCRAM-SHA-256=[name={one},password={SECRETS[one]}]\n" for one in (BYSTANDER, OWNER)))
        for broker_id, broker in self.brokers.items():
            broker.options += ["--add-scram", f"@{users}"]
            broker.settings |= self._settings(broker_id)

    def issue(self, name: str) -> None:
        """Write a new certificate. The key of the brokers is encrypted."""
        super().issue(name)
        if name == "broker":
            content = self.pem(name).read_bytes()
            key = load_pem_private_key(content, None)
            encryption = BestAvailableEncryption(SECRETS["key of the broker"].encode())
            encrypted = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)
            self.pem(name).write_bytes(encrypted + content[content.index(b"-----BEGIN CERTIFICATE") :])

    def _settings(self, broker_id: int) -> Mapping[str, str]:
        listeners = {"INTERNAL": self.brokers[broker_id].port}
        listeners |= {name: ports[broker_id] for name, ports in self.ports.items()}
        return {
            "listeners": ",".join(f"{name}://{HOST}:{port}" for name, port in listeners.items()),
            "inter.broker.listener.name": "INTERNAL",
            "listener.security.protocol.map": (
                f"INTERNAL:SSL,CONTROLLER:SSL,{CLIENTS}:SASL_SSL,{UNENCRYPTED}:SASL_PLAINTEXT"
            ),
            "ssl.key.password": SECRETS["key of the broker"],
            "ssl.client.auth": "required",
            "ssl.principal.mapping.rules": RULES,
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
            "listener.name.unencrypted.sasl.enabled.mechanisms": "SCRAM-SHA-256",
            "listener.name.clients.sasl.password": SECRETS["link"],
            "connections.max.reauth.ms": "3600000",
            "connection.failed.authentication.delay.ms": "1",
            "sasl.oauthbearer.jwks.endpoint.url": self.keys.as_uri(),
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "sasl.oauthbearer.expected.issuer": ISSUER,
            "sasl.oauthbearer.clock.skew.seconds": "0",
            "delegation.token.secret.key": SECRETS["tokens"],
            "controller.quorum.secret": SECRETS["quorum"],
            "authorizer.class.name": STANDARD_AUTHORIZER,
            "super.users": f"User:broker;User:{ADMIN}",
            "http.listen": f"{HOST}:{self.http_ports[broker_id]}",
            "http.security.protocol": "SSL",
            "http.ssl.client.auth": "requested",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.num.partitions": "1",
        }

    @cached_property
    def trusting(self) -> ssl.SSLContext:
        """The TLS context of a client without a certificate."""
        return ssl.create_default_context(cafile=str(self.ca_file))

    def context_of_brokers(self) -> ssl.SSLContext:
        """Return the TLS context of a client with the certificate of the brokers."""
        context = ssl.create_default_context(cafile=str(self.ca_file))
        context.load_cert_chain(self.pem("broker"), password=SECRETS["key of the broker"])
        return context

    def administrator(self) -> SaslClient:
        """Connect as a super user."""
        return SaslClient(self.brokers[1].port, self.context(ADMIN))

    def as_bystander(self) -> dict[str, Any]:
        """Return librdkafka's configuration of an authorized user."""
        return {
            "bootstrap.servers": ",".join(f"{HOST}:{port}" for port in self.ports[CLIENTS].values()),
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.ca_file),
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": BYSTANDER,
            "sasl.password": SECRETS[BYSTANDER],
        }

    def audit_directory(self, broker_id: int) -> Path:
        return self.brokers[broker_id].data / "audit"

    @cached_property
    def audit(self) -> "AuditLines":
        return AuditLines([self.audit_directory(broker_id) for broker_id in BROKERS])


class AuditLines:
    """The lines of the brokers' audit logs, by the address of the client."""

    def __init__(self, directories: list[Path]) -> None:
        self._directories = directories
        self._read: dict[Path, int] = {}
        self._by_host: dict[str, list[dict[str, Any]]] = {}

    def of(self, host: str) -> list[dict[str, Any]]:
        """Return the lines about a client that are written so far."""
        for line in self._new():
            self._by_host.setdefault(line["host"], []).append(line)
        return self._by_host.get(host, [])

    def _new(self) -> Iterator[dict[str, Any]]:
        for directory in self._directories:
            for path in sorted(directory.glob("audit-*.jsonl")):
                with path.open("rb") as file:
                    file.seek(self._read.get(path, 0))
                    content = file.read()
                complete = content[: content.rfind(b"\n") + 1]
                self._read[path] = self._read.get(path, 0) + len(complete)
                yield from map(json.loads, complete.splitlines())


def valid_token(user: str, key: Any = KEY, alg: str = "ES256", header: Mapping[str, Any] = {}, **changes: Any) -> str:
    """Return a token of the identity provider that is valid now, but for the changes."""
    return token(claims(time.time_ns() // 1_000_000, **{"sub": user, **changes}), key, alg=alg, **header)


def certificate_context(cluster: ClosedCluster, certificate: trustme.LeafCert) -> ssl.SSLContext:
    """Return the TLS context of a client with this certificate."""
    context = ssl.create_default_context(cafile=str(cluster.ca_file))
    certificate.configure_cert(context)
    return context
