"""What each broker of a local cluster is told: its settings, as the text of its configuration file."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cordwood.cluster.cli.exits import ExitCode, Failure
from cordwood.cluster.config import SETTINGS, Settings
from cordwood.cluster.config_sources import ConfigMistakes, load

HOST = "127.0.0.1"
VOTER_COUNTS = (1, 3, 5)
REPLICAS_MAX = 3

OWN_KEYS = frozenset({"node.id", "log.dirs", "listeners", "advertised.listeners", "http.listen"})
"""What no two brokers may have in common."""

PREAMBLE = """\
# Written by `cordwood up`, and read by this broker at each start: edit it as you like.
# Keys are Kafka's own. `cordwood up --set KEY=VALUE` writes it anew, without its comments.

"""


@dataclass(frozen=True, slots=True)
class Place:
    """What is one broker's own: its number, the ports it listens on, and the directory of its log."""

    broker_id: int
    kafka_port: int
    http_port: int
    data: str

    def rows(self) -> dict[str, str]:
        """The settings that say so."""
        return {
            "node.id": str(self.broker_id),
            "log.dirs": self.data,
            "listeners": f"PLAINTEXT://{HOST}:{self.kafka_port}",
            "http.listen": f"{HOST}:{self.http_port}",
        }


def default_voters(brokers: int) -> int:
    """How many of so many brokers keep the metadata: three where there are three, else one."""
    return 3 if brokers >= 3 else 1


def shared_rows(brokers: int, voter_ports: Mapping[int, int], secret: str) -> dict[str, str]:
    """The settings that all brokers of a new cluster have in common.

    `voter_ports` has the port of each broker that keeps the metadata. A broker that is alone keeps them without a vote.
    """
    replicas = str(min(REPLICAS_MAX, brokers))
    rows = {
        "default.replication.factor": replicas,
        "offsets.topic.replication.factor": replicas,
        "min.insync.replicas": "2" if brokers >= 3 else "1",
    }
    if brokers > 1:
        voters = ",".join(f"{broker}@{HOST}:{port}" for broker, port in voter_ports.items())
        rows |= {"controller.quorum.voters": voters, "controller.quorum.secret": secret}
    return rows


def rows_to_share(settings: Settings) -> dict[str, str]:
    """What a broker that joins takes over from one that is there."""
    return {key: text for key, text in given_rows(settings).items() if key not in OWN_KEYS}


def given_rows(settings: Settings) -> dict[str, str]:
    """Every setting that somebody gave, in the table's order."""
    texts = {key: settings.text_of(key) for key in SETTINGS if key in settings.given}
    return {key: text for key, text in texts.items() if text is not None}


def checked(rows: Mapping[str, str], overrides: Iterable[str]) -> Settings:
    """Settings from rows and `--set` texts. Raises Failure with exit code 2, which names every mistake."""
    overrides = tuple(overrides)
    for override in overrides:
        key = override.partition("=")[0].strip()
        if key in OWN_KEYS:
            raise Failure(
                f"--set {override}: each broker has its own {key}. `cordwood up` gives it, by --data-dir, --port and "
                "--http-port; or edit server.toml in the broker's directory.",
                ExitCode.USAGE,
            )
    return parsed(render(rows), overrides)


def parsed(toml: str, overrides: Iterable[str] = (), origin: str = "") -> Settings:
    """Settings from a file's text; `origin` is its name for the mistakes. Raises Failure with exit code 2."""
    try:
        return load(toml, {}, overrides)
    except ConfigMistakes as mistakes:
        sentences = [f"{origin}: {sentence}" if origin else sentence for sentence in mistakes.sentences]
        raise Failure("\ncordwood: ".join(sentences), ExitCode.USAGE) from None


def render(rows: Mapping[str, str]) -> str:
    """A configuration file. Keys are quoted, for one may begin like another (`max.connections`)."""
    return PREAMBLE + "".join(f"{json.dumps(key)} = {_value(text)}\n" for key, text in rows.items())


def _value(text: str) -> str:
    return text if text.isdecimal() and str(int(text)) == text else json.dumps(text, ensure_ascii=False)
