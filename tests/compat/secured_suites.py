"""Other projects' tests of authentication, encryption and ACLs, on three brokers with a listener of each protocol."""

import json
import os
import shutil
import sys
import tempfile
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

import franz_go_suite
import kafka_python_suite
from brokers import Brokers
from java_tools import JavaTools
from librdkafka_groups_suite import TIMES
from librdkafka_runner import LibrdkafkaRunner
from secured_brokers import SecuredBrokers, SecuredCluster, secured
from sources import sources
from suite import HERE, Suite, run_command
from suite_verdict import Outcomes, go_outcomes
from token_endpoint import token_endpoint

LIMIT_S = 900
SUPPORT = HERE.parent / "support"


class SecuredSuite(Suite):
    """A suite whose brokers are secured."""

    counts = (3,)
    settings: ClassVar[Mapping[str, str]] = {"num_partitions": "2"}

    @contextmanager
    def brokers(self, count: int) -> Iterator[Brokers]:
        assert count == SecuredBrokers.count
        temporary = tempfile.TemporaryDirectory(prefix="cordwood-compat-")
        with temporary as place, secured(Path(place), **self.settings) as brokers:
            yield brokers

    def run(self, brokers: Brokers, place: Path, output: Path, words: Sequence[str]) -> Outcomes:
        assert isinstance(brokers, SecuredBrokers)
        return self.run_secured(brokers.cluster, place, output, words)

    @abstractmethod
    def run_secured(self, cluster: SecuredCluster, place: Path, output: Path, words: Sequence[str], /) -> Outcomes:
        """Run the suite, as `run` does."""


def pytest_outcomes(
    tests: Sequence[str],
    plugin: str,
    folder: Path,
    output: Path,
    environment: Mapping[str, str],
    *paths: Path,
    limit_s: float = LIMIT_S,
) -> Outcomes:
    """Run tests of a suite in its folder with one of our plugins. `paths` are searched for modules first."""
    with tempfile.TemporaryDirectory() as place:
        outcomes = Path(place) / "outcomes"
        options = ["-o", "addopts=", "--timeout=90", "-p", "outcome_plugin", "-p", "no:cacheprovider", "--quiet"]
        plugins = ["-p", plugin] if plugin else []
        run_command(
            [sys.executable, "-m", "pytest", *tests, *options, *plugins, "--tb=short", "--disable-warnings"],
            output,
            limit_s,
            cwd=folder,
            environment={
                "COMPAT_OUTCOMES": str(outcomes),
                "PYTHONPATH": os.pathsep.join(map(str, (*paths, HERE, SUPPORT))),
                **environment,
            },
        )
        lines = outcomes.read_text().splitlines() if outcomes.exists() else []
    return {known["test"]: known["outcome"] for known in map(json.loads, lines)}


class SecuredKafkaPython(SecuredSuite):
    """The tests of SASL and TLS. Each starts a broker of its own, beside those of `brokers`."""

    name, version = "secured_kafka_python", kafka_python_suite.VERSION

    def prepare(self) -> None:
        kafka_python_suite.KafkaPython().prepare()

    def run_secured(self, _cluster: SecuredCluster, place: Path, output: Path, words: Sequence[str], /) -> Outcomes:
        tests = ["test/integration/test_sasl_integration.py", "test/integration/test_ssl_integration.py"]
        known = {"KAFKA_VERSION": kafka_python_suite.KAFKA_VERSION, "KAFKA_ROOT": str(place)}
        folder = kafka_python_suite.UNPACKED
        return pytest_outcomes([*tests, *words], "kafka_python_broker", folder, output, known, folder)


class SecuredAiokafka(SecuredSuite):
    """`test_sasl.py`: mechanisms and ACLs. Kerberos is not among the mechanisms of ours."""

    name, version = "secured_aiokafka", "0.14.0"

    def prepare(self) -> None:
        sources("aio-libs/aiokafka", f"v{self.version}")

    def run_secured(self, cluster: SecuredCluster, place: Path, output: Path, words: Sequence[str], /) -> Outcomes:
        # Not beside the package's own folder, which would be imported in place of the installed one.
        shutil.copytree(sources("aio-libs/aiokafka", f"v{self.version}") / "tests", place / "tests")
        shutil.copy(HERE / "aiokafka_conftest.py", place / "tests" / "conftest.py")
        addresses = {"SUITE_BROKERS": _first(cluster, "OPEN"), "SUITE_SASL": _first(cluster, "SASL")}
        return pytest_outcomes(["tests/test_sasl.py", "-k", "not gssapi", *words], "", place, output, addresses)


class SecuredConfluent(SecuredSuite):
    """The tests of SCRAM users' administration."""

    name, version = "secured_confluent", "2.14.0"

    def prepare(self) -> None:
        sources("confluentinc/confluent-kafka-python", f"v{self.version}")

    def run_secured(self, cluster: SecuredCluster, place: Path, output: Path, words: Sequence[str], /) -> Outcomes:
        folder = sources("confluentinc/confluent-kafka-python", f"v{self.version}")
        shutil.copytree(folder / "tests", place / "tests")
        shutil.copy(HERE / "confluent_kafka_conftest.py", place / "tests" / "integration" / "conftest.py")
        environment = {"SUITE_BROKERS": _first(cluster, "OPEN"), "TEST_TRIVUP_CLUSTER_TYPE": "kraft"}
        test = "tests/integration/admin/test_user_scram_credentials.py"
        return pytest_outcomes([test, *words], "", place, output, environment, place)


class SecuredFranzGo(SecuredSuite):
    """The tests of SCRAM with each hash, and chained transactions over TLS with a client certificate."""

    name = "secured_franz_go"

    def __init__(self) -> None:
        self._plain = franz_go_suite.FranzGo()
        self.version = self._plain.version

    def prepare(self) -> None:
        self._plain.prepare()

    def run_secured(self, cluster: SecuredCluster, place: Path, output: Path, _words: Sequence[str], /) -> Outcomes:
        outcomes: Outcomes = {}
        for bits in ("256", "512"):
            seeds = {
                "KGO_SEEDS": cluster.addresses("OPEN"),
                "KGO_TEST_SCRAM": f"alice:alice:{bits}",
                "KGO_TEST_SCRAM_SEEDS": cluster.addresses("SASL"),
            }
            outcomes |= self._test(f"SCRAM-SHA-{bits}", "^TestSCRAMAuth", place, output, seeds)
        pem = cluster.pem("alice")
        tls = {
            "KGO_SEEDS": cluster.addresses("TLS"),
            "KGO_TEST_TLS": f"ca:{cluster.ca_file},cert:{pem},key:{pem}",
            "KGO_TEST_RF": "3",
            "KGO_TEST_RECORDS": "5000",
        }
        return outcomes | self._test("TLS", "^TestTxnEtl$", place, output, tls)

    def _test(self, title: str, pattern: str, place: Path, output: Path, environment: Mapping[str, str]) -> Outcomes:
        events = place / f"{title}.events"
        run = ["go", "tool", "test2json", self._plain.program, "-test.v=test2json", f"-test.run={pattern}"]
        run_command([*run, f"-test.timeout={LIMIT_S}s"], events, LIMIT_S + 10, environment=environment)
        lines = [line for line in events.read_text().splitlines() if line.endswith("}")]
        with output.open("a") as log:
            log.writelines(json.loads(line).get("Output", "") for line in lines)
        return {f"{title}/{test}": outcome for test, outcome in go_outcomes(lines).items()}


class SecuredLibrdkafka(SecuredSuite):
    """Tests by number, with each mechanism that a test is for."""

    name = "secured_librdkafka"
    settings: ClassVar = {
        "connections_max_reauth_ms": "8000",
        # The tests of ACLs have anonymous clients, and deny them.
        "super_users": "User:broker",
    }
    RUNS: ClassVar = (
        ("", ("0115", "0119")),
        ("SCRAM-SHA-256", ("0135", "0142")),
        ("SCRAM-SHA-512", ("0135", "0142")),
        ("PLAIN", ("0135", "0142")),
        ("OAUTHBEARER", ("0126", "0142")),
    )

    def __init__(self) -> None:
        self._tools, self._runner = JavaTools("4.3.1"), LibrdkafkaRunner()
        self.version = self._runner.version

    def prepare(self) -> None:
        self._tools.fetch()
        self._runner.build()

    def run_secured(self, cluster: SecuredCluster, place: Path, output: Path, words: Sequence[str], /) -> Outcomes:
        scripts = place / "bin"
        scripts.mkdir()
        acls = scripts / "kafka-acls.sh"
        command = " ".join(f"'{word}'" for word in self._tools.command("AclCommand"))
        # The tests name the listener of their clients, which needs a configuration for this tool.
        acls.write_text(f'#!/bin/sh\nshift 2\nexec {command} --bootstrap-server {cluster.addresses("OPEN")} "$@"\n')
        acls.chmod(0o755)
        outcomes: Outcomes = {}
        with token_endpoint() as tokens:
            environment = {
                "KAFKA_PATH": str(place),
                "VALID_OIDC_URL": f"{tokens}/valid",
                "EXPIRED_TOKEN_OIDC_URL": f"{tokens}/expired",
                "INVALID_OIDC_URL": f"{tokens}/malformed",
            }
            for mechanism, numbers in self.RUNS:
                config = place / "test.conf"
                config.write_text(_test_conf(cluster, mechanism, tokens))
                for number in numbers:
                    if words and number not in words:
                        continue
                    log = place / f"{mechanism}-{number}.log"
                    outcomes[f"{mechanism or 'ACLs'}/{number}"] = self._runner.outcome(
                        number, config, log, output, environment
                    )
        return outcomes


def _test_conf(cluster: SecuredCluster, mechanism: str, tokens: str) -> str:
    # Five seconds of 0119's limit are for Java's start, twice.
    settings = {"bootstrap.servers": cluster.addresses("OPEN"), "test.timeout.multiplier": str(TIMES)}
    if mechanism:
        settings |= {
            "bootstrap.servers": cluster.addresses("SASL"),
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
        }
    if mechanism == "OAUTHBEARER":
        settings |= {
            "sasl.oauthbearer.method": "OIDC",
            "sasl.oauthbearer.token.endpoint.url": f"{tokens}/valid",
            "sasl.oauthbearer.client.id": "alice",
            "sasl.oauthbearer.client.secret": "alice",
        }
    elif mechanism:
        settings |= {"sasl.username": "test", "sasl.password": "test"}
    return "".join(f"{key}={value}\n" for key, value in settings.items())


def _first(cluster: SecuredCluster, listener: str) -> str:
    return cluster.addresses(listener).split(",")[0]
