"""`cordwood up --secure`: a closed cluster that works at once for those who may, and for no others."""

import json
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from broker_fixture import wait_until
from command import Outcome, cordwood, in_process
from confluent_kafka import Producer
from local_cluster import PORTS_APART, LocalCluster
from requirements import Requirement, needs

from cordwood.client.properties import read_properties
from cordwood.cluster.cli.exits import ExitCode

ANSWER_S = 20.0


class ClosedCluster:
    """A closed cluster of two brokers, and files with the settings of its users."""

    def __init__(self, local: LocalCluster, files: Path) -> None:
        self.local, self._files = local, files

    @property
    def admin(self) -> Path:
        return self.local.directory / "client.properties"

    @property
    def authorities(self) -> ssl.SSLContext:
        """The TLS context of a client that trusts the cluster's CA."""
        return ssl.create_default_context(cafile=self.local.directory / "security" / "ca.crt")

    def run(self, *words: str, config: Path | None = None, stdin: bytes = b"") -> Outcome:
        """Run a command as the administrator, or as somebody else."""
        return (cordwood if stdin else in_process)(
            *words, "--command-config", str(config or self.admin), **({"stdin": stdin} if stdin else {})
        )

    def done(self, *words: str, config: Path | None = None, stdin: bytes = b"") -> Outcome:
        """Run a command, which has to succeed."""
        outcome = self.run(*words, config=config, stdin=stdin)
        assert outcome.exit_code == ExitCode.OK, outcome.stderr
        return outcome

    def add_user(self, name: str) -> Path:
        """Add a user. Return the file with its settings."""
        password = self._files / f"{name}.password"
        password.write_text(f"secret of {name}\n")
        self.done("user", "add", name, "--password-file", str(password))
        return self.settings(name, **{"sasl.username": name, "sasl.password": f"secret of {name}"})

    def settings(self, name: str, **changes: str) -> Path:
        """Write the administrator's settings with changes, some of which may be empty."""
        path = self._files / f"{name}.properties"
        path.write_text("".join(f"{key}={text}\n" for key, text in (read_properties(self.admin) | changes).items()))
        return path

    def http(self, path: str) -> tuple[int, bytes]:
        """Return status and body of a request to broker 1 without a login."""
        try:
            port = self.local.port + PORTS_APART
            with urlopen(f"https://127.0.0.1:{port}{path}", timeout=ANSWER_S, context=self.authorities) as response:
                return response.status, response.read()
        except HTTPError as refused:
            return refused.code, refused.read()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClosedCluster]:
    directory = tmp_path_factory.mktemp("closed")
    local = LocalCluster(directory / "cluster", brokers=2)
    try:
        started = local.up("--secure", "--set", "controlled.shutdown.max.wait.ms=2000")
        assert started.text == f"{local.bootstrap}\n"
        assert f"--command-config {local.directory / 'client.properties'}" in started.stderr
        yield ClosedCluster(local, directory)
    finally:
        local.end()


def test_clients_connect_with_the_file_as_it_is(cluster: ClosedCluster) -> None:
    cluster.done("topic", "create", "at-once")
    producer = Producer(read_properties(cluster.admin))
    producer.produce("at-once", b"hello")
    assert producer.flush(ANSWER_S) == 0
    assert cluster.done("consume", "at-once").text == "hello\n"
    assert [broker["alive"] for broker in cluster.done("status", "--json").json["brokers"]] == [True, True]
    assert not (cluster.local.directory / "security" / "first-users").exists()


@needs(Requirement.KCAT, shutil.which("kcat") is not None, "there is no kcat on this machine")
def test_kcat_connects_with_the_file_as_it_is(cluster: ClosedCluster) -> None:
    listed = subprocess.run(["kcat", "-F", cluster.admin, "-L", "-J"], capture_output=True, timeout=90, check=False)
    assert listed.returncode == 0, listed.stderr
    assert len(json.loads(listed.stdout)["brokers"]) == 2


def test_a_user_may_do_what_acls_allow_and_nothing_else(cluster: ClosedCluster) -> None:
    alice = cluster.add_user("alice")
    cluster.done("topic", "create", "orders", "secret")
    assert cluster.run("topic", "describe", "orders", config=alice).exit_code == ExitCode.FAILED
    cluster.done("acl", "add", "--allow", "User:alice", "--producer", "--topic", "orders")
    cluster.done("acl", "add", "--allow", "User:alice", "--consumer", "--topic", "orders", "--group", "billing")
    assert "1 of 1" in cluster.done("produce", "orders", config=alice, stdin=b"3 apples\n").text
    assert cluster.done("consume", "orders", config=alice).text == "3 apples\n"
    assert cluster.done("consume", "orders", "--group", "billing", config=alice).text == "3 apples\n"
    assert [row["name"] for row in cluster.done("topic", "list", "--json", config=alice).json] == ["orders"]
    for refused in (
        ("consume", "secret"),
        ("acl", "list"),
        ("topic", "create", "other"),
        ("topic", "delete", "orders"),
    ):
        outcome = cluster.run(*refused, config=alice)
        assert outcome.exit_code == ExitCode.FAILED, refused
    cluster.done("acl", "remove", "--allow", "User:alice", "--producer", "--topic", "orders", "--yes")
    wait_until(
        lambda: cluster.run("produce", "orders", config=alice, stdin=b"pears\n").exit_code == ExitCode.FAILED,
        ANSWER_S,
        "the ACL to be gone on all brokers",
    )


def test_a_wrong_setting_is_named(cluster: ClosedCluster) -> None:
    def reason(**changes: str) -> str:
        outcome = cluster.run("topic", "list", config=cluster.settings("wrong", **changes))
        assert outcome.exit_code != ExitCode.OK
        return outcome.stderr

    assert "authentication with SCRAM-SHA-512 failed" in reason(**{"sasl.password": "wrong"})
    assert "its mechanisms are: SCRAM-SHA-256, SCRAM-SHA-512" in reason(**{"sasl.mechanism": "PLAIN"})
    assert "ssl.ca.location" in reason(**{"ssl.ca.location": "probe"})
    assert "security.protocol" in in_process("topic", "list", bootstrap=cluster.local.bootstrap).stderr


def test_a_token_lets_its_holder_in_until_it_expires(cluster: ClosedCluster) -> None:
    owner = cluster.add_user("owner")
    helper = cluster.add_user("helper")
    made = cluster.done("token", "create", "--renewer", "User:helper", "--max-hours", "48", "--json", config=owner).json
    login = (
        "org.apache.kafka.common.security.scram.ScramLoginModule required"
        f' username="{made["token_id"]}" password="{made["hmac"]}" tokenauth="true";'
    )
    holder = cluster.settings("holder", **{"sasl.username": "", "sasl.password": "", "sasl.jaas.config": login})
    assert "REQUEST_NOT_ALLOWED" in cluster.run("token", "list", config=holder).stderr
    [listed] = cluster.done("token", "list", "--owner", "User:owner", "--json").json
    assert (listed["token_id"], listed["renewers"]) == (made["token_id"], ["User:helper"])
    assert made["hmac"] not in json.dumps(listed)
    cluster.done("token", "renew", made["token_id"], "--hours", "1", config=helper)
    assert cluster.done("token", "expire", made["token_id"], config=owner).text == f"{made['token_id']}: expired\n"
    wait_until(
        lambda: "failed" in cluster.run("token", "list", config=holder).stderr, ANSWER_S, "the token to be refused"
    )


def test_http_has_tls_and_asks_for_a_login(cluster: ClosedCluster) -> None:
    assert cluster.http("/healthz")[0] == 200
    assert cluster.http("/v1/topics")[0] == 401
    checked = cordwood("ready", "--config", str(cluster.local.config()))
    assert checked.text == "ready\n", checked.stderr


def test_acts_are_in_the_audit_log(cluster: ClosedCluster) -> None:
    cluster.done("topic", "create", "audited")

    def lines() -> list[dict[str, Any]]:
        files = [path for row in cluster.local.brokers for path in (Path(row["data"]) / "audit").glob("*.jsonl")]
        return [json.loads(line) for path in files for line in path.read_text().splitlines()]

    def is_there() -> bool:
        return any((line["principal"], line["resource"]) == ("User:admin", "TOPIC:audited") for line in lines())

    wait_until(is_there, ANSWER_S, "the act in the audit log")
    for row in cluster.local.brokers:
        assert in_process("audit", "verify", f"{row['data']}/audit").exit_code == ExitCode.OK


def test_it_stops_starts_and_grows_with_everything(cluster: ClosedCluster) -> None:
    cluster.done("topic", "create", "kept")
    cluster.done("produce", "kept", stdin=b"before\n")
    stopped = cluster.local.down()
    assert stopped.exit_code == ExitCode.OK
    before = cluster.admin.read_bytes()
    grown = cluster.local.try_up("--brokers", "3")
    assert grown.exit_code == ExitCode.OK, grown.stderr
    assert cluster.admin.read_bytes() == before
    assert cluster.done("consume", "kept").text == "before\n"
    assert [broker["alive"] for broker in cluster.done("status", "--json").json["brokers"]] == [True, True, True]
