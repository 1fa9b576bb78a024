"""Kafka's tools for reassignments, feature levels and the metadata quorum, against a cluster of three."""

import json
import re
import subprocess
from pathlib import Path

from brokers import QUIET, Brokers
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from java_tools import TOOL_LIMIT_S, JavaTools

from cordwood.chaos.live.process import wait_for

ANSWER_S, MOVED_S = 30.0, 60.0
RECORD, RECORDS = b"x" * 1000, 3_000
THROTTLE = 1_000
"""Bytes per second, with which no reassignment here ends."""
LOG_END = 2
"""The column of a replica's log end in `describe --replication`."""

REASSIGN, FEATURES, QUORUM = "reassign.ReassignPartitionsCommand", "FeatureCommand", "MetadataQuorumCommand"


class AdminTools:
    """Tools of one version and the brokers that they are for."""

    def __init__(self, tools: JavaTools, brokers: Brokers) -> None:
        self.version = tools.version
        self._tools, self._brokers = tools, brokers

    def said(self, tool: str, *words: str, exit_code: int = 0, at: str = "") -> str:
        """Run a tool, with the broker `at` an address or with all, and return what it prints."""
        command = self._tools.command(tool, "--bootstrap-server", at or self._brokers.bootstrap, *words)
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TOOL_LIMIT_S, check=False
        )
        assert done.returncode == exit_code, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def configs(self, *words: str) -> str:
        """Run `kafka-configs --describe`."""
        bootstrap = ("--bootstrap-server", self._brokers.bootstrap)
        command = self._tools.admin_command("ConfigCommand", *bootstrap, "--describe", *words)
        return subprocess.run(command, capture_output=True, text=True, timeout=TOOL_LIMIT_S, check=True).stdout


def partitions_are_reassigned(tools: JavaTools, brokers: Brokers, place: Path) -> None:
    """Plan a move; begin it throttled, list it, and take it back; then make it whole. The throttles are cleared."""
    admin, topic = AdminTools(tools, brokers), f"{place.name}-{tools.version}"
    _fill(brokers, topic)
    wanted = place / "topics.json"
    wanted.write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}))
    generate = ("--generate", "--topics-to-move-json-file", str(wanted), "--broker-list", "2,3")
    now, proposed = map(json.loads, re.findall(r"^\{.*\}$", admin.said(REASSIGN, *generate), re.MULTILINE))
    assert [each["replicas"] for each in now["partitions"]] == [[1]]
    assert set(proposed["partitions"][0]["replicas"]) <= {2, 3}

    plan = place / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "replicas": [2, 3]}]}))
    file = ("--reassignment-json-file", str(plan))
    begun = admin.said(REASSIGN, "--execute", *file, "--throttle", str(THROTTLE))
    assert f"Successfully started partition reassignment for {topic}-0" in begun, begun
    assert "still in progress" in admin.said(REASSIGN, "--verify", *file, "--preserve-throttles")
    assert f"{topic}-0: replicas: 2,3,1. adding: 2,3. removing: 1." in admin.said(REASSIGN, "--list")
    assert "replication.throttled.rate" in admin.configs("--entity-type", "brokers", "--entity-name", "2")
    assert "throttled.replicas" in admin.configs("--entity-type", "topics", "--entity-name", topic)
    taken_back = admin.said(REASSIGN, "--cancel", *file)
    assert f"Successfully cancelled partition reassignment for: {topic}-0" in taken_back, taken_back
    assert "No partition reassignments found" in admin.said(REASSIGN, "--list")
    assert "throttled" not in admin.configs("--entity-type", "brokers", "--entity-name", "2")
    assert "throttled" not in admin.configs("--entity-type", "topics", "--entity-name", topic)

    admin.said(REASSIGN, "--execute", *file)
    done = f"Reassignment of partition {topic}-0 is completed."
    assert wait_for(lambda: done in admin.said(REASSIGN, "--verify", *file), MOVED_S), "the move did not end"
    shown = admin.said("TopicCommand", "--describe", "--topic", topic)
    assert re.search(r"Replicas: 2,3\s", shown), shown


def feature_levels(tools: JavaTools, brokers: Brokers, _place: Path) -> None:
    """Describe the levels, set one that the cluster has already, and be refused what it cannot have."""
    admin = AdminTools(tools, brokers)
    found = re.findall(r"Feature: (\S+).*FinalizedVersionLevel: (?:UNKNOWN )?(\S+)", admin.said(FEATURES, "describe"))
    levels = dict(found)
    assert {"metadata.version", "group.version", "transaction.version"} <= levels.keys()
    level = int(levels["group.version"])
    assert "was upgraded" in admin.said(FEATURES, "upgrade", "--feature", f"group.version={level}")
    for word, wanted in (("upgrade", level + 8), ("downgrade", 0)):
        refused = admin.said(FEATURES, word, "--feature", f"group.version={wanted}", exit_code=1)
        assert "Could not" in refused, refused
    assert dict(found) == levels


def voters_leave_and_return(tools: JavaTools, brokers: Brokers, place: Path) -> None:
    """Describe the quorum by each broker; take the vote from one that does not lead, and give it back."""
    admin = AdminTools(tools, brokers)
    for address in brokers.bootstrap.split(","):
        rows = admin.said(QUORUM, "describe", "--replication", at=address).splitlines()
        replicas = [line.split() for line in rows if line[:1].isdigit()]
        assert {replica[0] for replica in replicas} == {"1", "2", "3"}
        assert all(int(replica[LOG_END]) > 0 for replica in replicas), rows
    if tools.version < "4":
        return
    leader, voters = _quorum(admin)
    chosen = max(voters.keys() - {leader})
    directory = voters[chosen]["directoryId"]
    words = ("--controller-id", str(chosen), "--controller-directory-id", directory)
    admin.said(QUORUM, "remove-controller", *words)
    assert _quorum(admin)[1].keys() == voters.keys() - {chosen}
    address = next(at for at in voters[chosen]["endpoints"] if at.startswith("CONTROLLER://"))
    # The tool reads what it sends from the files of a broker of Kafka's.
    (place / "meta.properties").write_text(f"version=1\ncluster.id=c\nnode.id={chosen}\ndirectory.id={directory}\n")
    properties = {
        "process.roles": "controller",
        "node.id": chosen,
        "controller.listener.names": "CONTROLLER",
        "listeners": address,
        "controller.quorum.bootstrap.servers": address.partition("//")[2],
        "log.dirs": place,
    }
    file = place / "controller.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    admin.said(QUORUM, "--command-config", str(file), "add-controller")
    assert _quorum(admin)[1].keys() == voters.keys()


def _fill(brokers: Brokers, topic: str) -> None:
    client = AdminClient({**QUIET, "bootstrap.servers": brokers.bootstrap})
    client.create_topics([NewTopic(topic, 1, replica_assignment=[[1]])])[topic].result(ANSWER_S)
    producer = Producer({**QUIET, "bootstrap.servers": brokers.bootstrap})
    for _ in range(RECORDS):
        producer.produce(topic, RECORD)
    assert producer.flush(ANSWER_S) == 0


def _quorum(admin: AdminTools) -> tuple[int, dict[int, dict[str, str]]]:
    """Return the leader, and the voters by their ids."""
    shown = admin.said(QUORUM, "describe", "--status")
    found = dict(re.findall(r"^(\w+): +(.*)$", shown, re.MULTILINE))
    return int(found["LeaderId"]), {voter["id"]: voter for voter in json.loads(found["CurrentVoters"])}
