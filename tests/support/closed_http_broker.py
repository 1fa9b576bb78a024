"""A broker whose HTTP listener requires a login, and whose users and ACLs an administrator sets over Kafka."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from broker_fixture import RunningBroker, free_port
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from http_client import HttpAnswer, HttpClient

from cordwood.cluster.config.settings import STANDARD_AUTHORIZER
from cordwood.cluster.http.security.access import CSRF_HEADER

ANSWER_S = 30
CLUSTER = "kafka-cluster"


class ClosedBroker:
    """The broker's HTTP address, and its administration over a listener that only this machine reaches."""

    def __init__(self, broker: RunningBroker) -> None:
        self.broker = broker
        self.address = broker.settings["http.listen"]
        self._admin = AdminClient({"bootstrap.servers": broker.bootstrap})

    def add_user(self, name: str, password: str) -> None:
        """Add a user, or give it another password."""
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
        asked = self._admin.alter_user_scram_credentials([UserScramCredentialUpsertion(name, info, password.encode())])
        _finish(asked)

    def allow(self, user: str, operation: str, kind: str, name: str) -> None:
        """Give a user a right, such as `allow("alice", "READ", "TOPIC", "orders")`."""
        acl = AclBinding(
            ResourceType.BROKER if kind == "CLUSTER" else ResourceType[kind],
            name,
            ResourcePatternType.LITERAL,
            f"User:{user}",
            "*",
            AclOperation[operation],
            AclPermissionType.ALLOW,
        )
        _finish(self._admin.create_acls([acl]))

    def take_back(self, user: str) -> None:
        """Remove all rights of a user."""
        everything = AclBindingFilter(
            ResourceType.ANY,
            None,
            ResourcePatternType.ANY,
            f"User:{user}",
            None,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        _finish(self._admin.delete_acls([everything]))

    def log_in(self, user: str, password: str) -> HttpAnswer:
        return HttpClient(self.address).post("/v1/login", {"user": user, "password": password})

    def client(self, user: str, password: str) -> "UserClient":
        """Return an HTTP client in a new session."""
        answer = self.log_in(user, password)
        assert answer.status == 200, answer.content
        cookie = answer.headers["Set-Cookie"].partition(";")[0]
        return UserClient(self.address, {"Cookie": cookie, CSRF_HEADER: answer.json["csrf_token"]})


class UserClient(HttpClient):
    """A client in a session."""

    def __init__(self, address: str, session: dict[str, str]) -> None:
        super().__init__(address)
        self.session = session

    def ask(
        self, method: str, path: str, content: bytes | None = None, headers: dict[str, str] | None = None
    ) -> HttpAnswer:
        return super().ask(method, path, content, {**self.session, **(headers or {})})


@contextmanager
def closed_broker(directory: Path) -> Iterator[ClosedBroker]:
    """Run a broker whose HTTP users have no rights at first."""
    settings = {
        "http.listen": f"127.0.0.1:{free_port()}",
        "http.authentication": "required",
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:ANONYMOUS",
    }
    broker = RunningBroker(directory / "data", **settings).start()
    try:
        yield ClosedBroker(broker)
    finally:
        broker.stop()


def _finish(asked: dict[Any, Any]) -> None:
    for future in asked.values():
        future.result(ANSWER_S)
