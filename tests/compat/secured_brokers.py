"""Three brokers that authenticate each other by certificates, with a listener of each security protocol for clients."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from broker_fixture import RunningBroker, free_port
from brokers import Brokers
from identity_provider import AUDIENCE, ISSUER, claims, key_set_text, token
from secure_cluster import HOST, SecureCluster

PROTOCOLS = {"OPEN": "PLAINTEXT", "SASL": "SASL_PLAINTEXT", "SASLTLS": "SASL_SSL", "TLS": "SSL"}
"""Protocols by listener. Clients of OPEN are super users unless the settings name others."""
MECHANISMS = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER"
USERS = ("admin", "test", "alice")
"""Users whose passwords are their names."""
TOKEN_S = 60


class SecuredCluster(SecureCluster):
    """The brokers. Without an ACL everything is allowed. `settings` are further ones of all brokers."""

    def __init__(self, directory: Path, **settings: str) -> None:
        self.ports = {name: {broker_id: free_port() for broker_id in (1, 2, 3)} for name in PROTOCOLS}
        directory.mkdir(parents=True, exist_ok=True)
        self._keys = directory / "keys.json"
        self._keys.write_bytes(key_set_text())
        super().__init__(directory, "SSL", **settings)

    def addresses(self, listener: str) -> str:
        """Return the addresses host:port of a listener on all brokers."""
        return ",".join(f"{HOST}:{port}" for port in self.ports[listener].values())

    def _broker(self, broker_id: int, settings: dict[str, str]) -> RunningBroker:
        broker = super()._broker(broker_id, settings)
        names = self.ports.items()
        listeners = "".join(f",{name}://{HOST}:{ports[broker_id]}" for name, ports in names)
        protocols = "".join(f",{name}:{protocol}" for name, protocol in PROTOCOLS.items())
        broker.settings["listeners"] += listeners
        broker.settings["listener.security.protocol.map"] += protocols
        broker.settings |= {
            "inter.broker.listener.name": "INTERNAL",
            "listener.name.tls.ssl.client.auth": "required",
            "listener.name.internal.ssl.client.auth": "required",
            "sasl.enabled.mechanisms": MECHANISMS,
            "sasl.plain.unencrypted.listeners": "SASL",
            "sasl.oauthbearer.jwks.endpoint.url": self._keys.as_uri(),
            "sasl.oauthbearer.expected.issuer": ISSUER,
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "delegation.token.secret.key": "the secret of these tests",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "allow.everyone.if.no.acl.found": "true",
            "offsets.topic.replication.factor": "3",
            "transaction.state.log.replication.factor": "3",
            "ssl.principal.mapping.rules": "RULE:^CN=([^,]*).*$/$1/,DEFAULT",
            "super.users": "User:broker;User:admin;User:ANONYMOUS",
        }
        broker.settings |= {key.replace("_", "."): value for key, value in settings.items()}
        for user in USERS:
            for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
                broker.options += ["--add-scram", f"{mechanism}=[name={user},password={user}]"]
        return broker


class SecuredBrokers(Brokers):
    """The cluster of a foreign suite; `bootstrap` is its open listener."""

    count = 3

    def __init__(self, cluster: SecuredCluster) -> None:
        self.cluster = cluster

    @property
    def bootstrap(self) -> str:
        return self.cluster.addresses("OPEN")

    def kill_and_restart(self, at: int) -> None:
        broker = self.cluster.brokers[at + 1]
        broker.kill()
        broker.start()

    def lose(self, topic: str) -> None:
        raise NotImplementedError(topic)

    def logs(self) -> str:
        return "".join(f"==> broker {key}\n{broker.output}" for key, broker in self.cluster.brokers.items())


@contextmanager
def secured(directory: Path, **settings: Any) -> Iterator[SecuredBrokers]:
    """Start the brokers; in the end stop them."""
    cluster = SecuredCluster(directory, **settings)
    try:
        cluster.start()
        yield SecuredBrokers(cluster)
    finally:
        cluster.stop()


def bearer_token(life_s: int = TOKEN_S, **changes: object) -> tuple[str, int]:
    """Return a new token of the user alice, and the second at which it expires."""
    now_s = time.time()
    expires_s = int(now_s) + life_s
    return token(claims(int(now_s * 1000), exp=expires_s, **changes)), expires_s
