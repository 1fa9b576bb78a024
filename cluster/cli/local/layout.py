"""Settings of the brokers of a local cluster, as the text of their configuration files."""

import json
from collections.abc import Iterable, Mapping

from cordwood.cluster.cli.exits import ExitCode, Failure
from cordwood.cluster.config.settings import SETTINGS, Settings
from cordwood.cluster.config.sources import ConfigMistakes, load

HOST = "127.0.0.1"
VOTER_COUNTS = (1, 3, 5)
REPLICAS_MAX = 3

OWN_KEYS = frozenset({"node.id", "log.dirs", "listeners", "advertised.listeners", "http.listen"})
"""Settings in which any two brokers differ."""

PREAMBLE = """\
# Configuration of this broker, created by `cordwood up` and read at each start. You may edit it.
# The keys are Kafka's. `cordwood up --set KEY=VALUE` overwrites the file and drops its comments.

"""


def own_rows(broker_id: int, kafka_port: int, http_port: int, data: str) -> dict[str, str]:
    """Return the settings of one broker that no other broker shares. `data` is its log directory."""
    return {
        "node.id": str(broker_id),
        "log.dirs": data,
        "listeners": f"PLAINTEXT://{HOST}:{kafka_port}",
        "http.listen": f"{HOST}:{http_port}",
    }


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
        "min.insync.replicas": "2" if brokers >= 3 else "1",
    }
    if brokers > 1:
        voters = ",".join(f"{broker}@{HOST}:{port}" for broker, port in voter_ports.items())
        rows |= {"controller.quorum.voters": voters, "controller.quorum.secret": secret}
    return rows


def rows_to_share(settings: Settings) -> dict[str, str]:
    """Return the settings that a new broker takes from an existing one."""
    return {key: text for key, text in given_rows(settings).items() if key not in OWN_KEYS}


def given_rows(settings: Settings) -> dict[str, str]:
    """Return every setting that was set explicitly, in the table's order."""
    texts = {key: settings.text_of(key) for key in SETTINGS if key in settings.given}
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
