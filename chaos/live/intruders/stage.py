"""A closed broker with a bystander and a watch, and the intruders' knowledge of it.

| listener | protocol | who is let in |
|---|---|---|
| CLIENTS | SASL_SSL, all mechanisms | users |
| READABLE | SASL_PLAINTEXT, all mechanisms | users; without TLS, an intruder makes many more attempts in an hour |
| BROKERS | SSL, client certificates required | brokers |
| HTTP | TLS | users, by login or token |
"""

import json
import secrets
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from joserfc import jwt
from joserfc.jwk import RSAKey

from cordwood.chaos.live import security
from cordwood.chaos.live.bystander import LiveBystander, Observed
from cordwood.chaos.live.flood.watch import BrokerWatch
from cordwood.chaos.live.process import BrokerProcess, free_port
from cordwood.chaos.live.security import client_settings
from cordwood.cluster.config.settings import STANDARD_AUTHORIZER
from cordwood.cluster.security import certificates

HOST = "127.0.0.1"
CLIENTS, READABLE, BROKERS = "CLIENTS", "READABLE", "BROKERS"
ADMIN, USER, GUEST, BROKER_USER = "admin", "alice", "mallory", "broker"
"""A super user; a user whose password no intruder knows; a user without any right, whose password they know."""
MARKER = "vault-5ec0de"
"""The name of a topic that only the super user may see."""
BYSTANDER_TOPIC = "bystander"
ISSUER, AUDIENCE = "https://id.example.org/", "cordwood"
CERTIFICATE_DAYS, TOKEN_S = 30, 10 * 86_400
STEADY_S, ANSWER_S, SESSION_S = 60.0, 30.0, 30.0
SETTLE_S = 3.0
SIGNS_OF_FAILURE = (
    "Traceback",
    "request.failed",
    "authentication.broken",
    "Error handling request",
    "exception was never retrieved",
    "Exception in callback",
)
SHOWN_MAX, SHOWN_CHARS_MAX = 5, 1500


@dataclass(frozen=True, slots=True)
class ClosedTarget:
    """What an intruder knows: addresses, the CA, the name of a user, a guest's password, and tokens that are public."""

    ports: Mapping[str, int]
    http_port: int
    ca_file: str
    guest_password: str
    user_password: str
    """For exchanges that would be valid, before they are changed. No attempt sends one as it is."""
    user_token: str
    """A valid token of the user. No attempt sends it as it is."""
    guest_token: str
    public_key: str
    """The PEM of the identity provider's public key."""
    own_pair: str
    """A PEM file with a key and a certificate of the intruder's own CA, in the name of a broker."""


class ClosedStage:
    """A closed broker that is started on entering the `with` block and killed on leaving it. Its files stay in `place`.

    While it runs, all other clients of this process connect as its super user (`cordwood.chaos.live.security`).
    """

    def __init__(self, place: Path, settings: Mapping[str, str] | None = None) -> None:
        place.mkdir(parents=True, exist_ok=True)
        self._place = place
        self._passwords = {name: secrets.token_urlsafe(12) for name in (ADMIN, USER, GUEST)}
        ports = {name: free_port() for name in (CLIENTS, READABLE, BROKERS)}
        http_port = free_port()
        self._write_certificates()
        key = RSAKey.generate_key(2048, {"kid": "first"})
        keys = place / "keys.json"
        keys.write_text(json.dumps({"keys": [key.as_dict(private=False)]}))
        users = place / "users"
        users.write_text("".join(f"{name}={password}\n" for name, password in self._passwords.items()))
        self._client_file = place / "client.properties"
        self._client_file.write_text(
            f"security.protocol=SASL_SSL\nssl.ca.location={place / 'ca.pem'}\nsasl.mechanism=SCRAM-SHA-256\n"
            f"sasl.username={ADMIN}\nsasl.password={self._passwords[ADMIN]}\n"
        )
        self.target = ClosedTarget(
            ports,
            http_port,
            str(place / "ca.pem"),
            self._passwords[GUEST],
            self._passwords[USER],
            _token(key, USER),
            _token(key, GUEST),
            key.as_pem(private=False).decode(),
            str(place / "intruder.pem"),
        )
        self.broker = BrokerProcess(
            place / "data",
            {**self._settings(ports, http_port, keys), **(settings or {})},
            options=("--add-scram", f"@{users}"),
        )
        self.broker.port = ports[CLIENTS]

    def __enter__(self) -> Self:
        self.broker.start()
        security.use(self._client_file)
        self._admin = AdminClient(client_settings(self.broker.address))
        for created in self._admin.create_topics([NewTopic(name, 1, 1) for name in (MARKER, BYSTANDER_TOPIC)]).values():
            created.result(ANSWER_S)
        self.watch = BrokerWatch([self.broker], self._place)
        self.watch.start()
        self.bystander = LiveBystander(self.broker.address, BYSTANDER_TOPIC, SESSION_S)
        self.bystander.start()
        self._is_judged = False
        self.bystander.wait_until_steady(STEADY_S)
        self._before = self._content()
        self.watch.take_baseline()
        return self

    def __exit__(self, *_: object) -> None:
        self.broker.kill()
        if not self._is_judged:
            self.bystander.stop(is_broker_gone=True)
            self.watch.stop()
        security.use(None)

    def context(self) -> ssl.SSLContext:
        """Return the TLS context of a client."""
        return ssl.create_default_context(cafile=self.target.ca_file)

    def verdict(self, growth_mb_max: float) -> tuple[Observed, list[str]]:
        """Stop the bystander. Return its observations, and a sentence for each promise that the broker broke."""
        complaints = self.watch.exits()
        if not complaints:
            time.sleep(SETTLE_S)
        observed = self.bystander.stop(is_broker_gone=bool(complaints))
        self.watch.stop()
        self._is_judged = True
        complaints += [f"the bystander saw: {error}" for error in observed.errors[:SHOWN_MAX]]
        complaints += signs_of_failure(self.broker.output())
        if self.watch.growth_mb > growth_mb_max:
            complaints.append(f"the broker grew by {self.watch.growth_mb:.1f} MB, where {growth_mb_max:g} are allowed")
        if not self.broker.has_ended and (after := self._content()) != self._before:
            complaints.append(f"an intruder changed the cluster: {self._before} became {after}")
        return observed, complaints

    def _content(self) -> dict[str, Any]:
        """Return all that an intruder could change: topics, users and ACLs, as the super user sees them."""
        # confluent-kafka's annotations know neither filters without a name nor all users at once.
        everything = AclBindingFilter(
            ResourceType.ANY,
            None,  # type: ignore[arg-type]
            ResourcePatternType.ANY,
            None,  # type: ignore[arg-type]
            None,  # type: ignore[arg-type]
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        users = self._admin.describe_user_scram_credentials().result(ANSWER_S)  # type: ignore[union-attr]
        return {
            "topics": sorted(self._admin.list_topics(timeout=ANSWER_S).topics),
            "users": sorted(
                f"{name} {info.mechanism.name} {info.iterations}"
                for name, user in users.items()
                for info in user.scram_credential_infos
            ),
            "acls": sorted(map(str, self._admin.describe_acls(everything).result(ANSWER_S))),
        }

    def _settings(self, ports: Mapping[str, int], http_port: int, keys: Path) -> dict[str, str]:
        mechanisms = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER"
        return {
            "listeners": ",".join(f"{name}://{HOST}:{port}" for name, port in ports.items()),
            "listener.security.protocol.map": f"{CLIENTS}:SASL_SSL,{READABLE}:SASL_PLAINTEXT,{BROKERS}:SSL",
            "inter.broker.listener.name": BROKERS,
            "ssl.keystore.location": str(self._place / "broker.pem"),
            "ssl.truststore.location": str(self._place / "ca.pem"),
            "listener.name.brokers.ssl.client.auth": "required",
            "ssl.principal.mapping.rules": f"RULE:CN=({BROKER_USER})-[0-9]+/$1/,DEFAULT",
            "sasl.enabled.mechanisms": mechanisms,
            "sasl.plain.unencrypted.listeners": READABLE,
            "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "sasl.oauthbearer.expected.issuer": ISSUER,
            "connections.max.reauth.ms": "3600000",
            "connection.failed.authentication.delay.ms": "0",
            "connections.max.idle.ms": "60000",
            "delegation.token.secret.key": secrets.token_urlsafe(24),
            "authorizer.class.name": STANDARD_AUTHORIZER,
            "super.users": f"User:{ADMIN};User:{BROKER_USER}",
            "http.listen": f"{HOST}:{http_port}",
            "http.security.protocol": "SSL",
            "audit.log.enable": "on",
            "auto.create.topics.enable": "false",
            "group.initial.rebalance.delay.ms": "0",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.num.partitions": "1",
        }

    def _write_certificates(self) -> None:
        now = datetime.now(UTC)
        ours, theirs = (certificates.make_ca(name, CERTIFICATE_DAYS, now) for name in ("ours", "theirs"))
        (self._place / "ca.pem").write_bytes(ours.certificate_pem)
        for name, ca in (("broker.pem", ours), ("intruder.pem", theirs)):
            made = certificates.issue(ca, f"{BROKER_USER}-1", [HOST, "localhost"], CERTIFICATE_DAYS, now=now)
            (self._place / name).write_bytes(made.key_pem + made.certificate_pem)


def signs_of_failure(output: str) -> list[str]:
    """Return a complaint for the first lines of a broker's log that say that it failed at something."""
    found = [line for line in output.splitlines() if any(sign in line for sign in SIGNS_OF_FAILURE)]
    return [f"in the log: {line[:SHOWN_CHARS_MAX]}" for line in found[:SHOWN_MAX]]


def _token(key: RSAKey, user: str) -> str:
    """Return a token of the identity provider."""
    now_s = int(time.time())
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": user, "iat": now_s, "exp": now_s + TOKEN_S, "scope": "read write"}
    return jwt.encode({"alg": "RS256", "typ": "JWT", "kid": "first"}, claims, key)
