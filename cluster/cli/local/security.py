"""Security of a local cluster: its CA, a certificate for each broker, and the administrator.

client.properties         settings with which every client connects as the administrator
security/ca.key, ca.crt   the CA; without its key no broker can be added
security/broker-1.pem     private key and certificate of broker 1
security/first-users      the administrator's first password; removed once the cluster is ready
"""

import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cordwood.client.security import OPEN, ClientSecurity
from cordwood.cluster.cli import cert
from cordwood.cluster.cli.client import target_of
from cordwood.cluster.cli.exits import ExitCode, Failure
from cordwood.cluster.cli.local import layout
from cordwood.cluster.cli.local.directory import ONLY_THE_OWNER, ClusterDirectory, LocalBroker, replace_file
from cordwood.cluster.cli.options import DEFAULT_SERVERS

CLIENT_FILE = "client.properties"
FIRST_USERS = "first-users"
PASSWORD_BYTES = 18
RENEWED_BEFORE = timedelta(days=30)
"""A broker's certificate that ends sooner is replaced by the next `cordwood up`."""


@dataclass(frozen=True, slots=True)
class LocalSecurity:
    """The credentials of a local cluster, some of which may not be there."""

    directory: ClusterDirectory

    @property
    def client_file(self) -> Path:
        """The administrator's client settings."""
        return self.directory.path / CLIENT_FILE

    @property
    def first_users(self) -> Path | None:
        """The users with whom the cluster begins; None once it is ready, and for an open cluster."""
        path = self._path / FIRST_USERS
        return path if path.exists() else None

    def client(self) -> ClientSecurity:
        """Return how clients connect: by client.properties, or without security. Raises Failure."""
        return target_of(DEFAULT_SERVERS, self.client_file).security if self.client_file.exists() else OPEN

    def provide(self, members: Iterable[LocalBroker]) -> None:
        """Write the missing files of a closed cluster, and replace certificates that expire soon. Raises Failure."""
        closed = [member for member in members if layout.is_secure(member.settings)]
        if not closed:
            return
        if not any(member.config.exists() for member in closed):
            self._found(closed)
        for member in closed:
            if self._lacks_certificate(member):
                self._issue(member)

    def forget_first_users(self) -> None:
        """Remove the first password, which the cluster has in its metadata now."""
        (self._path / FIRST_USERS).unlink(missing_ok=True)

    @property
    def _path(self) -> Path:
        return self.directory.security

    def _found(self, members: list[LocalBroker]) -> None:
        """Write the CA, the administrator and its client settings, unless an earlier attempt has."""
        if not (self._path / cert.CA_CERTIFICATE).exists():
            try:
                self._path.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise Failure(f"cannot write {self._path}: {error.strerror}.", ExitCode.USAGE) from None
            cert.write_ca(self._path, "Cordwood CA", cert.CA_DAYS)
        password = secrets.token_urlsafe(PASSWORD_BYTES)
        replace_file(self._path / FIRST_USERS, f"{layout.ADMINISTRATOR}={password}\n", ONLY_THE_OWNER)
        rows = {
            "bootstrap.servers": ",".join(member.kafka for member in members),
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self._path / cert.CA_CERTIFICATE),
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": layout.ADMINISTRATOR,
            "sasl.password": password,
        }
        replace_file(self.client_file, "".join(f"{key}={text}\n" for key, text in rows.items()), ONLY_THE_OWNER)

    def _lacks_certificate(self, member: LocalBroker) -> bool:
        """Return whether a broker's certificate is ours to make: one elsewhere is the user's own."""
        path = Path(member.settings.ssl_keystore_location)
        if path.parent != self._path:
            return False
        if not path.exists():
            return True
        ends = cert.end_of(path)
        return ends is not None and ends < datetime.now(UTC) + RENEWED_BEFORE and (self._path / cert.CA_KEY).exists()

    def _issue(self, member: LocalBroker) -> None:
        from cordwood.cluster.security import certificates

        name = layout.certificate_name(member.broker_id)
        hosts, now = [layout.HOST, "localhost", name], datetime.now(UTC)
        made = certificates.issue(cert.read_ca(self._path), name, hosts, cert.DAYS, now=now)
        cert.write_pair(self._path, name, made, may_replace=True)
