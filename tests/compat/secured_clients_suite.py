"""A rolling restart and a change of certificates under clients of every library with each of its mechanisms."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import trustme
from confluent_kafka.admin import AdminClient, NewTopic
from java_tools import JavaTools
from requirements import Requirement
from secured_brokers import SecuredCluster
from secured_clients import LIBRARIES, Client, FranzGo, Java, TokenFile, wait_for
from secured_suites import SecuredSuite
from suite import CACHE, HERE, ROOT, Unmet, run_command
from suite_verdict import Outcomes

PARTITIONS = 3
MORE = 20
"""Numbers that each client sends and receives after the last restart."""


class SecuredClients(SecuredSuite):
    """One outcome for each library and mechanism; `words` select libraries."""

    name, version = "secured_clients", "1"

    def __init__(self) -> None:
        self._tools = JavaTools("4.3.1")

    def prepare(self) -> None:
        if shutil.which("kcat") is None:
            raise Unmet(Requirement.KCAT, "there is no kcat here")
        self._tools.fetch()
        Java.jars, FranzGo.program = self._tools.jars, CACHE / "franz-go-client"
        # Built in the module that pins franz-go's version.
        module = ROOT / "bench" / "load"
        output = CACHE / "output" / f"{self.name}-build.log"
        overlay = CACHE / "overlay.json"
        overlay.write_text(f'{{"Replace": {{"{module}/franz_go_client/main.go": "{HERE}/franz_go_client/main.go"}}}}')
        build = ["go", "build", f"-overlay={overlay}", "-o", FranzGo.program, "./franz_go_client"]
        if shutil.which("go") is None or run_command(build, output, 600, cwd=module) != 0:
            raise Unmet(Requirement.GO, "franz-go's client could not be built")

    def run_secured(self, cluster: SecuredCluster, place: Path, output: Path, words: Sequence[str], /) -> Outcomes:
        old, new = cluster.authority, trustme.CA()
        cluster.trust(old, new)
        cluster.reload()
        tokens = TokenFile(place / "token")
        clients = [
            library(cluster, mechanism, f"{library.library}-{mechanism}", place)
            for library, mechanisms in LIBRARIES.items()
            for mechanism in mechanisms
            if not words or library.library in words
        ]
        admin = AdminClient({"bootstrap.servers": cluster.addresses("OPEN")})
        topics = [NewTopic(client.topic, PARTITIONS, 3) for client in clients]
        for created in admin.create_topics(topics).values():
            created.result(60)
        try:
            for client in clients:
                client.start()
            wait_for(lambda: all(client.received for client in clients), 60)
            late = [str(client) for client in clients if not client.received]
            cluster.authority = new
            cluster.issue("broker")
            cluster.reload()
            for broker in cluster.brokers.values():
                assert broker.terminate() == 0
                broker.start()
                assert wait_for(lambda: _is_replicated(admin)), "the brokers do not get in sync"
                received = {client: len(client.received) for client in clients}
                wait_for(lambda before=received: all(len(client.received) > before[client] for client in clients), 20)
            marks = {client: len(client.received) + MORE for client in clients}
            wait_for(lambda: all(len(client.received) >= marks[client] for client in clients), 60)
            for client in clients:
                client.end_sending()
            wait_for(lambda: all(client.received >= client.sent for client in clients))
        finally:
            for client in clients:
                client.close()
            tokens.close()
        with output.open("a") as log:
            log.write(f"late: {late}\n")
            for client in clients:
                log.write(f"{client}: {len(client.sent)} sent, {len(client.received)} received, {client.errors}\n")
        return {str(client): "passed" if _is_well(client) else "failed" for client in clients}


def _is_well(client: Client) -> bool:
    return len(client.sent) > MORE and client.received >= client.sent and not client.errors


def _is_replicated(admin: AdminClient) -> bool:
    topics = admin.list_topics(timeout=20).topics.values()
    return all(len(one.isrs) == len(one.replicas) for topic in topics for one in topic.partitions.values())
