"""`kafka-configs` on quotas of users, clients and addresses, and Kafka's own producer and consumer under them."""

import re
import subprocess
from pathlib import Path

from brokers import QUIET, Brokers
from confluent_kafka.admin import AdminClient, NewTopic
from java_tools import JavaTools

WAIT_S = 60.0
RATE = 2_000_000
RECORD_BYTES, RECORDS = 1000, 12_000
"""Six seconds at the rate."""
SECONDS_MIN = 4.0
SHOWN = re.compile(r"^Quota configs for (.*) are (.*)$", re.MULTILINE)


def quotas_are_set_shown_and_removed(tools: JavaTools, brokers: Brokers, place: Path) -> None:
    """Set a quota of each kind of entity, describe them, and remove them again."""
    name = f"{place.name}-{tools.version}"
    entities = {
        f"user-principal '{name}'": ["--entity-type", "users", "--entity-name", name],
        f"client-id '{name}'": ["--entity-type", "clients", "--entity-name", name],
        f"user-principal '{name}', the default client-id": [
            *("--entity-type", "users", "--entity-name", name, "--entity-type", "clients", "--entity-default"),
        ],
    }
    address = ["--entity-type", "ips", "--entity-name", "10.1.2.3"]
    for entity in entities.values():
        _configs(tools, brokers, "--alter", "--add-config", "producer_byte_rate=1048576,request_percentage=50", *entity)
    _configs(tools, brokers, "--alter", "--add-config", "connection_creation_rate=20", *address)
    for shown, entity in entities.items():
        found = dict(SHOWN.findall(_configs(tools, brokers, "--describe", *entity)))
        assert set(found[shown].split(", ")) == {"producer_byte_rate=1048576.0", "request_percentage=50.0"}
    found = dict(SHOWN.findall(_configs(tools, brokers, "--describe", *address)))
    assert found == {"ip '10.1.2.3'": "connection_creation_rate=20.0"}
    refused = _configs(tools, brokers, "--alter", "--add-config", "producer_byte_rate=-1", *address, exit_code=1)
    assert "producer_byte_rate" in refused
    for shown, entity in entities.items():
        _configs(tools, brokers, "--alter", "--delete-config", "producer_byte_rate,request_percentage", *entity)
        assert shown not in dict(SHOWN.findall(_configs(tools, brokers, "--describe", *entity)))
    _configs(tools, brokers, "--alter", "--delete-config", "connection_creation_rate", *address)


def clients_obey_their_quotas(tools: JavaTools, brokers: Brokers, place: Path) -> None:
    """Produce and consume with a quota: Kafka's clients take as long as it says, and lose nothing."""
    name = f"{place.name}-{tools.version}"
    admin = AdminClient({**QUIET, "bootstrap.servers": brokers.bootstrap})
    admin.create_topics([NewTopic(name, 1, brokers.count)])[name].result(WAIT_S)
    entity = ["--entity-type", "clients", "--entity-name", name]
    limits = f"producer_byte_rate={RATE},consumer_byte_rate={RATE}"
    _configs(tools, brokers, "--alter", "--add-config", limits, *entity)
    properties = place / "client.properties"
    properties.write_text(f"bootstrap.servers={brokers.bootstrap}\nclient.id={name}\n")
    produced = _run(
        tools.command(
            "ProducerPerformance",
            *("--topic", name, "--num-records", str(RECORDS), "--record-size", str(RECORD_BYTES)),
            *("--throughput", "-1", "--producer.config", str(properties)),
        )
    )
    rate = re.findall(r"(\d+) records sent, ([\d.]+) records/sec", produced)[-1]
    assert rate[0] == str(RECORDS)
    assert RECORDS / float(rate[1]) >= SECONDS_MIN, produced
    consumed = _run(
        tools.command(
            "ConsumerPerformance",
            *("--bootstrap-server", brokers.bootstrap, "--topic", name, "--messages", str(RECORDS)),
            *("--consumer.config", str(properties), "--timeout", "60000", "--hide-header"),
        )
    )
    cells = next(line for line in consumed.splitlines() if line.count(", ") == 9).split(", ")
    assert int(cells[4]) >= RECORDS
    assert int(cells[7]) >= SECONDS_MIN * 1000, "the time that it fetched"
    _configs(tools, brokers, "--alter", "--delete-config", "producer_byte_rate,consumer_byte_rate", *entity)


def _configs(tools: JavaTools, brokers: Brokers, *words: str, exit_code: int = 0) -> str:
    command = tools.admin_command("ConfigCommand", "--bootstrap-server", brokers.bootstrap, *words)
    return _run(command, exit_code)


def _run(command: list[str], exit_code: int = 0) -> str:
    """Run a tool and return its output."""
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=2 * WAIT_S, check=False
    )
    assert done.returncode == exit_code, f"{' '.join(command)}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr
