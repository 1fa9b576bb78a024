"""A broker's HTTP server with users, tokens, certificates and rights, and clients that log in."""

import base64
import re
from collections.abc import Callable
from typing import Any
from uuid import UUID

from http_fixture import Answer, HttpStory

from cordwood.cluster.config.settings import Settings
from cordwood.cluster.http.api.table import ROUTES
from cordwood.cluster.http.security.access import CSRF_HEADER
from cordwood.cluster.http.security.credentials import Checks, TooManyChecks
from cordwood.cluster.http.security.rights import OPEN_ROUTES, RIGHTS_OF_PATHS
from cordwood.cluster.metadata.acls import AclOperation, AclResource
from cordwood.cluster.metadata.commands import (
    AlterScramCredentials,
    BrokerId,
    CreateTopic,
    ScramDeletion,
    ScramUpsertion,
)
from cordwood.cluster.metadata.credentials import ScramMechanism
from cordwood.cluster.security.authorizer import OPERATIONS_ON
from cordwood.cluster.security.principal import USER, Identity, Principal
from cordwood.cluster.security.sasl.exchange import Authenticated, AuthenticationFailed

REQUIRED = Settings(http_authentication="required")
ALICE = Principal(USER, "alice")
DESCRIBES = "alice DESCRIBE CLUSTER kafka-cluster"

CLOSED = [
    *((route.method, route.path) for route in ROUTES if (route.method, route.path) not in OPEN_ROUTES),
    *(("GET", path) for path in RIGHTS_OF_PATHS),
]
"""The routes and paths that need a login."""


class ListedRights:
    """An authorizer with a list of rights, as `alice READ TOPIC orders`."""

    is_ready = True

    def __init__(self, *rights: str) -> None:
        self.rights = set(rights)

    def may(self, identity: Identity, operation: AclOperation, resource: AclResource, name: str, /) -> bool:
        return f"{identity.principal.name} {operation.name} {resource.name} {name}" in self.rights

    may_see = may

    def may_any(self, identity: Identity, operation: AclOperation, resource: AclResource, /) -> bool:
        begin = f"{identity.principal.name} {operation.name} {resource.name} "
        return any(right.startswith(begin) for right in self.rights)

    def operations(self, identity: Identity, resource: AclResource, name: str, /) -> int:
        return OPERATIONS_ON[resource] & sum(
            1 << each for each in AclOperation if self.may(identity, each, resource, name)
        )


class SecuredStory(HttpStory):
    """An HTTP server that asks who its clients are. `async with SecuredStory(…) as broker` starts it."""

    def __init__(self, *rights: str, settings: Settings = REQUIRED, has_acls: bool = True) -> None:
        self.authorizer = ListedRights(*rights)
        self.passwords: dict[str, str] = {}
        self.tokens: dict[str, Authenticated] = {}
        """Bearer tokens, and delegation tokens as ID:SECRET."""
        self.certificate: Principal | None = None
        """The principal of the certificate of all clients."""
        self.is_busy = False
        self.meanwhile: Callable[[], None] = lambda: None
        """Called while a password is checked."""
        checks = Checks(
            self._check_password, self._token, lambda *both: self._token(":".join(both)), lambda _: self.certificate
        )
        authorizer = {"authorizer": self.authorizer} if has_acls else {}
        super().__init__(settings=settings, checks=checks, has_api=True, **authorizer)

    def add_user(self, name: str, password: str) -> None:
        """Add a user, or give it another password."""
        self.passwords[name] = password
        salt = f"salt {len(self.metadata.proposed)}".encode()
        upsertion = ScramUpsertion(name, ScramMechanism.SCRAM_SHA_256, salt, b"stored", b"server", 4096)
        self.metadata.apply(AlterScramCredentials((upsertion,)))

    def remove_user(self, name: str) -> None:
        del self.passwords[name]
        self.metadata.apply(AlterScramCredentials((), (ScramDeletion(name, ScramMechanism.SCRAM_SHA_256),)))

    async def log_in(self, user: str, password: str, **headers: str) -> Answer:
        return await self.ask("/v1/login", "POST", {"user": user, "password": password}, **headers)

    async def session(self, user: str, password: str) -> dict[str, str]:
        """Log in. Return the headers of a request in the session that changes something."""
        answer = await self.log_in(user, password)
        assert answer.status == 200, answer.text
        return {**cookie_of(answer), CSRF_HEADER: answer.json["csrf_token"]}

    async def status(self, path: str, method: str = "GET", content: Any = None, **headers: str) -> int:
        return (await self.ask(path, method, content, **headers)).status

    async def _check_password(self, user: str, password: str, _host: str) -> Principal | None:
        if self.is_busy:
            raise TooManyChecks
        is_right = self.passwords.get(user) == password
        self.meanwhile()
        return Principal(USER, user) if is_right else None

    def _token(self, text: str) -> Authenticated:
        found = self.tokens.get(text)
        if found is None:
            raise AuthenticationFailed("the token is not valid")
        return found


def basic(user: str, secret: str) -> str:
    """Return an Authorization header."""
    return "Basic " + base64.b64encode(f"{user}:{secret}".encode()).decode()


def add_topics(broker: HttpStory, *names: str) -> None:
    """Register three brokers, and create topics with a config."""
    broker.register(1, 2, 3)
    for number, name in enumerate(names, 1):
        assignment = (BrokerId(1), BrokerId(2), BrokerId(3))
        broker.metadata.apply(CreateTopic(UUID(int=100 + number), name, (assignment,), (("retention.ms", "1000"),)))


def cookie_of(answer: Answer) -> dict[str, str]:
    """Return the header with the cookie that a response sets."""
    match = re.match(r"([^=]+=[^;]+);", answer.headers["Set-Cookie"])
    assert match is not None, answer.headers
    return {"Cookie": match[1]}


__all__ = ["REQUIRED", "CreateTopic", "ListedRights", "SecuredStory", "cookie_of"]
