"""Three broker processes that authenticate each other, and strangers who pose as brokers."""

import os
import signal
import socket
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import trustme
from broker_fixture import RunningBroker, free_port, wait_until

HOST = "127.0.0.1"
BROKERS = (1, 2, 3)
RELOADED = "event=tls.reloaded"
ANSWER_S = 20.0


class SecureCluster:
    """Three brokers with one listener. `protocol` is the listener's, and the quorum has TLS if that has."""

    def __init__(self, directory: Path, protocol: str, **settings: str) -> None:
        self.directory, self.protocol = directory, protocol
        self.authority = trustme.CA()
        self.trust(self.authority)
        for name in ("broker", "admin", "alice"):
            self.issue(name)
        quorum_ports = {broker_id: free_port() for broker_id in BROKERS}
        voters = ",".join(f"{broker_id}@{HOST}:{port}" for broker_id, port in quorum_ports.items())
        self.quorum_ports = quorum_ports
        self.brokers = {
            broker_id: self._broker(broker_id, {"controller_quorum_voters": voters, **settings})
            for broker_id in BROKERS
        }

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    @property
    def has_tls(self) -> bool:
        return self.protocol.endswith("SSL")

    @property
    def ca_file(self) -> Path:
        return self.directory / "ca.pem"

    def pem(self, name: str) -> Path:
        """Return the file with a name's private key and certificate."""
        return self.directory / f"{name}.pem"

    def trust(self, *authorities: trustme.CA) -> None:
        """Write the file of trusted authorities."""
        _write(self.ca_file, b"".join(one.cert_pem.bytes() for one in authorities))

    def issue(self, name: str) -> None:
        """Write a new certificate of the current authority."""
        issued = self.authority.issue_cert(HOST, common_name=name)
        chain = b"".join(blob.bytes() for blob in issued.cert_chain_pems)
        _write(self.pem(name), issued.private_key_pem.bytes() + chain)

    def start(self, *broker_ids: int) -> None:
        """Start brokers, or all of them, at the same time: they wait for each other."""
        starting = [self.brokers[broker_id] for broker_id in broker_ids or BROKERS]
        with ThreadPoolExecutor(len(starting)) as threads:
            for _ in threads.map(RunningBroker.start, starting):
                pass

    def stop(self) -> None:
        with ThreadPoolExecutor(len(self.brokers)) as threads:
            for _ in threads.map(_kill, self.brokers.values()):
                pass

    def reload(self) -> None:
        """Have all brokers load their certificates again, and wait until they have."""
        before = {broker_id: broker.output.count(RELOADED) for broker_id, broker in self.brokers.items()}
        for broker_id, broker in self.brokers.items():
            os.kill(broker.pid, signal.SIGHUP)
            # One line for the listener of brokers, and one for that of the quorum.
            wait_until(
                lambda broker=broker, least=before[broker_id] + 2: broker.output.count(RELOADED) >= least,
                ANSWER_S,
                f"new certificates of broker {broker_id}",
            )

    def client(self, name: str) -> dict[str, Any]:
        """Return librdkafka's configuration of a client with a certificate."""
        tls = {
            "ssl.ca.location": str(self.ca_file),
            "ssl.certificate.location": str(self.pem(name)),
            "ssl.key.location": str(self.pem(name)),
        }
        return {"bootstrap.servers": self.bootstrap, "security.protocol": self.protocol.lower(), **tls}

    def context(self, name: str) -> ssl.SSLContext:
        """Return the TLS context of a client with a certificate."""
        context = ssl.create_default_context(cafile=str(self.ca_file))
        context.load_cert_chain(self.pem(name))
        return context

    @contextmanager
    def connected(self, broker_id: int, name: str | None) -> Iterator[socket.socket]:
        """Connect to a broker's listener, with TLS and a certificate if a name is given."""
        with connected_to(self.brokers[broker_id].port, None if name is None else self.context(name)) as connection:
            yield connection

    def _broker(self, broker_id: int, settings: dict[str, str]) -> RunningBroker:
        broker = RunningBroker(self.directory / f"broker-{broker_id}", **settings)
        controllers = "SSL" if self.has_tls else "PLAINTEXT"
        broker.settings |= {
            "node.id": str(broker_id),
            "listeners": f"INTERNAL://{broker.bootstrap}",
            "listener.security.protocol.map": f"INTERNAL:{self.protocol},CONTROLLER:{controllers}",
            "default.replication.factor": "3",
            "min.insync.replicas": "2",
        }
        if self.has_tls:
            broker.settings |= {
                "ssl.keystore.location": str(self.pem("broker")),
                "ssl.truststore.location": str(self.ca_file),
            }
        return broker


@contextmanager
def connected_to(port: int, context: ssl.SSLContext | None) -> Iterator[socket.socket]:
    """Connect to a port, with TLS if there is a context."""
    with socket.create_connection((HOST, port), ANSWER_S) as connection:
        if context is None:
            yield connection
        else:
            with context.wrap_socket(connection, server_hostname=HOST) as encrypted:
                yield encrypted


def answer_to(connection: socket.socket, sent: bytes) -> bytes:
    """Send bytes, and return everything that comes until the broker ends the connection."""
    received = b""
    try:
        connection.sendall(sent)
        while data := connection.recv(1 << 16):
            received += data
    except (ConnectionError, ssl.SSLError):
        pass
    return received


def _write(path: Path, content: bytes) -> None:
    """Replace a file in one step, as tools for certificates do."""
    new = path.with_name(f"{path.name}.new")
    new.write_bytes(content)
    new.replace(path)


def _kill(broker: RunningBroker) -> None:
    if broker.is_running:
        broker.kill()
