"""Settings of the brokers of a local cluster, as the text of their configuration files."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cordwood.cluster.cli.exits import ExitCode, Failure
from cordwood.cluster.config.listeners import listeners_of
from cordwood.cluster.config.settings import SETTINGS, STANDARD_AUTHORIZER, Settings
from cordwood.cluster.config.sources import ConfigMistakes, load
from cordwood.cluster.metadata.config_values import text_of

HOST = "127.0.0.1"
VOTER_COUNTS = (1, 3, 5)
REPLICAS_MAX = 3
REBALANCE_DELAY_MS = "3000"
"""Kafka's default, which clients expect that start the members of a group one after another."""

CLIENTS, BROKERS = "CLIENTS", "BROKERS"
"""The listeners of a closed cluster."""
ADMINISTRATOR, BROKER_USER = "admin", "broker"
"""The super users of a closed cluster. The certificates of all brokers are the second one's."""

OWN_KEYS = frozenset(
    {"node.id", "log.dirs", "listeners", "advertised.listeners", "http.listen", "ssl.keystore.location"}
)
"""Settings in which any two brokers differ."""

PREAMBLE = """\
# Configuration of this broker, created by `cordwood up` and read at each start. You may edit it.
# The keys are Kafka's. `cordwood up --set KEY=VALUE` overwrites the file and drops its comments.

"""


@dataclass(frozen=True, slots=True)
class Ports:
    """The ports of one broker. `brokers` is for connections of other brokers; None in an open cluster."""

    kafka: int
    http: int
    brokers: int | None = None


def own_rows(broker_id: int, ports: Ports, data: str, security: str = "") -> dict[str, str]:
    """Return the settings of one broker that no other broker shares.

    `data` is its log directory, and `security` the directory of certificates.
    """
    rows = {"node.id": str(broker_id), "log.dirs": data, "http.listen": f"{HOST}:{ports.http}"}
    if ports.brokers is None:
        return rows | {"listeners": f"PLAINTEXT://{HOST}:{ports.kafka}"}
    return rows | {
        "listeners": f"{CLIENTS}://{HOST}:{ports.kafka},{BROKERS}://{HOST}:{ports.brokers}",
        "ssl.keystore.location": f"{security}/{certificate_name(broker_id)}.pem",
    }


def certificate_name(broker_id: int) -> str:
    """Return the common name of a broker's certificate."""
    return f"broker-{broker_id}"


def secure_rows(authorities: str, token_secret: str) -> dict[str, str]:
    """Return the settings that close a cluster. `authorities` is the file with the CA's certificate."""
    return {
        "listener.security.protocol.map": f"{CLIENTS}:SASL_SSL,{BROKERS}:SSL,CONTROLLER:SSL",
        "inter.broker.listener.name": BROKERS,
        "ssl.truststore.location": authorities,
        "ssl.client.auth": "required",
        "ssl.principal.mapping.rules": f"RULE:CN=({BROKER_USER})-[0-9]+/$1/,DEFAULT",
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": f"User:{ADMINISTRATOR};User:{BROKER_USER}",
        "http.security.protocol": "SSL",
        "audit.log.enable": "on",
        "delegation.token.secret.key": token_secret,
    }


def is_secure(settings: Settings) -> bool:
    """Return whether a broker has the listeners of a closed cluster."""
    return any(listener.name == BROKERS and listener.is_tls for listener in listeners_of(settings))


def default_voters(brokers: int) -> int:
    """Return the default number of voters: three of three or more brokers, else one."""
    return 3 if brokers >= 3 else 1


def shared_rows(brokers: int, voter_ports: Mapping[int, int], secret: str) -> dict[str, str]:
    """Return the settings that all brokers of a new cluster share.

    `voter_ports` has the port of each voter. A cluster of one broker has no voters.
    """
    replicas = str(min(REPLICAS_MAX, brokers))
    rows = {
        "default.replication.factor": replicas,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "share.coordinator.state.topic.replication.factor": replicas,
        "min.insync.replicas": "2" if brokers >= 3 else "1",
        "group.initial.rebalance.delay.ms": REBALANCE_DELAY_MS,
    }
    if brokers > 1:
        voters = ",".join(f"{broker}@{HOST}:{port}" for broker, port in voter_ports.items())
        rows |= {"controller.quorum.voters": voters, "controller.quorum.secret": secret}
    return rows


def rows_to_share(settings: Settings) -> dict[str, str]:
    """Return the settings that a new broker takes from an existing one."""
    return {key: text for key, text in given_rows(settings).items() if key not in OWN_KEYS}


def given_rows(settings: Settings) -> dict[str, str]:
    """Return every setting that was set explicitly, in the table's order; those of single listeners last."""
    texts = {key: settings.text_of(key) for key in SETTINGS if key in settings.given}
    texts |= {key: text_of(value) for key, value in settings.listener_overrides.items()}
    return {key: text for key, text in texts.items() if text is not None}


def checked(rows: Mapping[str, str], overrides: Iterable[str]) -> Settings:
    """Return the settings from rows and `--set` texts. Raises Failure (exit code 2) with every mistake."""
    overrides = tuple(overrides)
    for override in overrides:
        key = override.partition("=")[0].strip()
        if key in OWN_KEYS:
            raise Failure(
                f"--set {override}: {key} differs for each broker. Set it with --data-dir, --port or --http-port, or"
                " edit server.toml in the broker's directory.",
                ExitCode.USAGE,
            )
    return parsed(render(rows), overrides)


def parsed(toml: str, overrides: Iterable[str] = (), origin: str = "") -> Settings:
    """Return the settings from a file's text; messages begin with `origin`. Raises Failure with exit code 2."""
    try:
        return load(toml, {}, overrides)
    except ConfigMistakes as mistakes:
        sentences = [f"{origin}: {sentence}" if origin else sentence for sentence in mistakes.sentences]
        raise Failure("\ncordwood: ".join(sentences), ExitCode.USAGE) from None


def render(rows: Mapping[str, str]) -> str:
    """Return a configuration file. Keys are quoted: one key may be a prefix of another (`max.connections`)."""
    return PREAMBLE + "".join(f"{json.dumps(key)} = {_value(text)}\n" for key, text in rows.items())


def _value(text: str) -> str:
    return text if text.isdecimal() and str(int(text)) == text else json.dumps(text, ensure_ascii=False)
