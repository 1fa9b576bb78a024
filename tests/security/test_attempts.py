"""Every attempt of the list against a closed cluster of three brokers, beside an authorized producer and consumer.

Each attempt is refused as the list says, and the audit log says so; `tests/support/attempts/` has the list.
"""

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from attempts import ATTEMPTS
from attempts.attempt import Attempt, Stranger
from attempts.exchanges import GUESS
from attempts.http_routes import NAMES, http_lacks
from attempts.kafka_apis import lacks, name_of
from broker_fixture import wait_until
from closed_cluster import ADMIN, BYSTANDER, SECRETS, ClosedCluster
from confluent_kafka import Consumer, Producer
from request_of_each_api import FLIGHTS, PAY, TEAM
from requests_without_rights import Grant, codes_in
from sasl_client import SaslClient
from secure_cluster import BROKERS

from cordwood.cluster.http.api.table import ROUTES
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.rights import CLUSTER, DESCRIBE, GROUP, READ, TOPIC, WRITE
from cordwood.cluster.metadata.acls import Pattern, Permission
from cordwood.cluster.security.authorizer import CLUSTER_NAME

ATTEMPTS_MIN = 200
STEADY = "steady"
AUDITED_S, ACKED_S = 30.0, 60.0
SLOWEST_S = 10.0
"""A generous bound: a bystander's request takes milliseconds."""
REPLICAS = 3


def acl(user: str, grant: Grant, name: str) -> dict[str, Any]:
    operation, resource = grant
    return {
        "resource_type": int(resource),
        "resource_name": CLUSTER_NAME if resource is CLUSTER else name,
        "resource_pattern_type": int(Pattern.LITERAL),
        "principal": f"User:{user}",
        "host": "*",
        "operation": int(operation),
        "permission_type": int(Permission.ALLOW),
    }


def all_acls() -> list[dict[str, Any]]:
    """Return the ACLs of the bystander, and those of the users that have other rights than the required ones."""
    made = [acl(BYSTANDER, grant, STEADY) for grant in ((WRITE, TOPIC), (READ, TOPIC), (READ, GROUP))]
    for lack in lacks():
        made += [acl(lack.user, grant, name_of(lack.api, grant[1])) for grant in lack.given]
    for user, _, _, right, given in http_lacks():
        name = {TOPIC: FLIGHTS, GROUP: TEAM, CLUSTER: CLUSTER_NAME}.get(right.resource, PAY)
        made += [acl(user, grant, name) for grant in given]
    return [dict(one) for one in {tuple(one.items()) for one in made}]


def has_offsets(cluster: ClosedCluster) -> bool:
    """Commit an offset of the group that is attacked, at whichever broker is its coordinator. Return whether one is."""
    offset = {"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1}
    topics = ({"name": FLIGHTS, "partitions": (offset,)},)
    for broker_id in BROKERS:
        with SaslClient(cluster.brokers[broker_id].port, cluster.context(ADMIN)) as admin:
            admin.ask(ApiKey.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=(TEAM,))
            fields = {"group_id": TEAM, "generation_id_or_member_epoch": -1, "topics": topics}
            if not list(codes_in(admin.ask(ApiKey.OFFSET_COMMIT, 8, **fields))):
                return True
    return False


def prepare(cluster: ClosedCluster, admin: SaslClient) -> UUID:
    """Make topics, a group, a transactional id and the ACLs. Return the id of the topic that is attacked."""
    topics = tuple({"name": name, "num_partitions": 3, "replication_factor": REPLICAS} for name in (FLIGHTS, STEADY))
    created = admin.ask(ApiKey.CREATE_TOPICS, 7, topics=topics, timeout=timedelta(seconds=30))
    assert list(codes_in(created)) == []
    answer = admin.ask(ApiKey.CREATE_ACLS, 3, creations=tuple(all_acls()))
    assert list(codes_in(answer)) == []
    wait_until(lambda: has_offsets(cluster), ACKED_S, "a coordinator")
    found: UUID = next(row.topic_id for row in created.topics if row.name == FLIGHTS)
    return found


class Bystander:
    """An authorized producer that waits for all replicas, and a consumer, in threads."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.errors: list[str] = []
        self.acked: set[str] = set()
        self.consumed: set[str] = set()
        self.slowest_s = 0.0
        self._ended = threading.Event()
        self._producer = Producer({**config, "acks": "all", "linger.ms": 0, "error_cb": self._failed})
        own = {"group.id": STEADY, "auto.offset.reset": "earliest", "error_cb": self._failed}
        self._consumer = Consumer({**config, **own})
        self._threads = [threading.Thread(target=each) for each in (self._produce, self._consume)]
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Stop producing, and consume what was acknowledged."""
        self._ended.set()
        for thread in self._threads:
            thread.join()
        self._consumer.close()

    def _produce(self) -> None:
        number = 0
        while not self._ended.is_set():
            number += 1
            began = time.monotonic()
            self._producer.produce(STEADY, str(number), on_delivery=self._delivered)
            if self._producer.flush(ACKED_S):
                self.errors.append(f"record {number} was not acknowledged")
            self.slowest_s = max(self.slowest_s, time.monotonic() - began)
            self._ended.wait(0.01)

    def _consume(self) -> None:
        self._consumer.subscribe([STEADY])
        deadline = float("inf")
        while time.monotonic() < deadline:
            record = self._consumer.poll(0.1)
            if record is not None and record.error() is not None:
                self.errors.append(str(record.error()))
            elif record is not None:
                self.consumed.add(record.value().decode())
            if self._ended.is_set():
                deadline = min(deadline, time.monotonic() + ACKED_S)
                if not self._threads[0].is_alive() and self.acked <= self.consumed:
                    return

    def _delivered(self, error: Any, record: Any) -> None:
        if error is not None:
            self.errors.append(str(error))
        else:
            self.acked.add(record.value().decode())

    def _failed(self, error: Any) -> None:
        self.errors.append(str(error))


class Run:
    """The cluster of all attempts, and the bystander."""

    def __init__(self, cluster: ClosedCluster) -> None:
        self.cluster = cluster
        with cluster.administrator() as admin:
            self.topic_id = prepare(cluster, admin)
        self.bystander = Bystander(cluster.as_bystander())
        wait_until(lambda: bool(self.bystander.consumed), ACKED_S, "the bystander's first record")

    def stranger(self, attempt: Attempt) -> Stranger:
        """Return the client of an attempt, with an address of its own."""
        number = ATTEMPTS.index(attempt)
        return Stranger(self.cluster, f"127.7.{number // 200}.{number % 200 + 1}", self.topic_id)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    cluster = ClosedCluster(tmp_path_factory.mktemp("closed"))
    try:
        cluster.start()
        running = Run(cluster)
        try:
            yield running
        finally:
            running.bystander.end()
    finally:
        cluster.stop()


def test_the_list_is_long() -> None:
    assert len(ATTEMPTS) >= ATTEMPTS_MIN
    assert {attempt.port.name for attempt in ATTEMPTS} == set(type(ATTEMPTS[0].port).__members__)


@pytest.mark.parametrize("attempt", ATTEMPTS, ids=lambda attempt: attempt.name)
def test_the_attempt_is_refused_and_audited(attempt: Attempt, run: Run) -> None:
    stranger = run.stranger(attempt)
    assert attempt.send(stranger) == attempt.refusal
    if attempt.audited is not None:
        fits: Callable[[dict[str, Any]], bool] = attempt.audited.fits
        wait_until(lambda: any(map(fits, run.cluster.audit.of(stranger.host))), AUDITED_S, _seen(attempt, run))
    assert not run.bystander.errors


def _seen(attempt: Attempt, run: Run) -> Any:
    class Lines:
        def __str__(self) -> str:
            return f"{attempt.audited} among {run.cluster.audit.of(run.stranger(attempt).host)}"

        def __format__(self, _: str) -> str:
            return str(self)

    return Lines()


def test_no_secret_is_shown(run: Run) -> None:
    shown: dict[str, bytes] = {}
    for broker_id, broker in run.cluster.brokers.items():
        shown[f"the log of broker {broker_id}"] = broker.output.encode()
        for path in run.cluster.audit_directory(broker_id).iterdir():
            shown[f"the audit log of broker {broker_id}"] = path.read_bytes()
    as_admin = Stranger(run.cluster, "127.8.0.1", run.topic_id)
    paths = {route.path.format_map(NAMES) for route in ROUTES}
    for path in sorted(paths | {"/metrics", "/v1/status", "/console/pulse", "/openapi.json", "/"}):
        reply = as_admin.http("GET", path, tls=run.cluster.context(ADMIN))
        shown[path] = reply.content
        assert reply.status in (200, 404, 405), (path, reply)
    with run.cluster.administrator() as admin:
        resources = tuple({"resource_type": 4, "resource_name": str(broker_id)} for broker_id in BROKERS)
        described = [
            admin.ask(ApiKey.DESCRIBE_CONFIGS, 4, resources=(one,), include_synonyms=True) for one in resources[:1]
        ]
        users = admin.ask(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, users=None)
        shown["DescribeConfigs"], shown["DescribeUserScramCredentials"] = str(described).encode(), str(users).encode()
    assert b"delegation.token.secret.key" in shown["DescribeConfigs"]
    assert b"Bearer ey" not in b"".join(shown.values())
    for secret in (*SECRETS.values(), GUESS):
        assert [place for place, content in shown.items() if secret.encode() in content] == []


def test_the_bystander_has_lost_nothing(run: Run, record_property: Callable[[str, object], None]) -> None:
    run.bystander.end()
    assert run.bystander.errors == []
    assert run.bystander.acked
    assert run.bystander.acked <= run.bystander.consumed
    record_property("slowest request of the bystander, in seconds", f"{run.bystander.slowest_s:.3f}")
    record_property("records of the bystander", len(run.bystander.acked))
    assert run.bystander.slowest_s < SLOWEST_S


def test_the_audit_logs_are_whole(run: Run) -> None:
    for broker_id in BROKERS:
        command = [sys.executable, "-m", "cordwood.cluster.cli", "audit", "verify"]
        verified = subprocess.run(
            [*command, str(run.cluster.audit_directory(broker_id))],
            capture_output=True,
            text=True,
            check=False,
            cwd=run.cluster.directory,
        )
        assert verified.returncode == 0, verified.stdout + verified.stderr


def test_the_administrator_still_gets_in(run: Run) -> None:
    with run.cluster.administrator() as admin:
        answer = admin.ask(ApiKey.DESCRIBE_CLUSTER, 1, include_cluster_authorized_operations=True)
    assert answer.cluster_authorized_operations >> DESCRIBE & 1
