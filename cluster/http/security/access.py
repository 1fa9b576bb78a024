"""Access to HTTP: the identity of a request, its proof, and its rights."""

from collections.abc import Callable
from dataclasses import dataclass

import structlog
from aiohttp import web
from kio.schema.errors import ErrorCode

from cordwood.cluster.config.listeners import http_requires_login
from cordwood.cluster.config.settings import Settings
from cordwood.cluster.http.guard import LOOPBACK_NAMES, SAFE_METHODS, is_loopback
from cordwood.cluster.http.refusal import HttpRefusal, as_sentence
from cordwood.cluster.http.security.attempts import LoginAttempts
from cordwood.cluster.http.security.credentials import (
    BEARER,
    Checks,
    Given,
    TooManyChecks,
    given_in,
    unauthenticated,
)
from cordwood.cluster.http.security.rights import (
    CODES,
    METRICS_PATH,
    OPEN_PATHS,
    OPEN_ROUTES,
    RIGHTS_OF_PATHS,
    RouteRight,
)
from cordwood.cluster.http.security.sessions import LoginSession, Sessions
from cordwood.cluster.metadata.acls import AclOperation, AclResource
from cordwood.cluster.security.audit.event import AUTHENTICATE, FAILED, AuditEvent
from cordwood.cluster.security.audit.log import AuditSink
from cordwood.cluster.security.authorizer import CLUSTER_NAME, OPEN_ACCESS, Authorizer
from cordwood.cluster.security.principal import ANONYMOUS, Identity, Principal
from cordwood.cluster.security.sasl.exchange import Authenticated, AuthenticationFailed

CSRF_HEADER = "X-CSRF-Token"
PASSWORD, OAUTHBEARER, DELEGATION_TOKEN, CERTIFICATE = "PASSWORD", "OAUTHBEARER", "DELEGATION-TOKEN", "SSL"
"""The mechanisms of an identity over HTTP."""
WRONG_PASSWORD = "The user name or the password is not correct."

_events = structlog.get_logger("http")


@dataclass(frozen=True, slots=True)
class Access:
    """What one request may do: its sender, and the decision about it."""

    identity: Identity
    authorizer: Authorizer
    is_valid: Callable[[], bool] = lambda: True
    """Returns whether the proof still holds. Streams ask again."""
    session: LoginSession | None = None

    def may(self, right: RouteRight, name: str) -> bool:
        """Return whether the sender has a right on the resource of that name."""
        return self.authorizer.may(self.identity, right.operation, right.resource, name)

    def sees(self, right: RouteRight, name: str) -> bool:
        """Decide as `may` about a resource that the client has not named: without the right, it is left out."""
        return self.authorizer.may_see(self.identity, right.operation, right.resource, name)

    def check(self, right: RouteRight, name: str) -> None:
        """Raise HttpRefusal unless the sender has a right on the resource of that name."""
        if not self.may(right, name):
            raise _denied(self.identity.principal, right.operation, right.resource, name)


class AccessControl:
    """The decisions about the requests to one broker's HTTP listener."""

    def __init__(
        self,
        settings: Settings,
        authorizer: Authorizer,
        checks: Checks,
        credentials_of: Callable[[str], object],
        is_current: Callable[[], bool],
        audit: AuditSink,
        now: Callable[[], float],
        wall_clock: Callable[[], int],
        random_bytes: Callable[[int], bytes],
    ) -> None:
        """`credentials_of` is that of Sessions. `is_current` returns whether this broker has the newest metadata.

        `now` is in seconds, `wall_clock` in milliseconds since 1970.
        """
        self.is_required = http_requires_login(settings)
        self._authorizer, self._checks, self._is_current, self._audit = authorizer, checks, is_current, audit
        self._now, self._wall_clock = now, wall_clock
        self._without_tls = settings.http_login_without_tls
        self._credentials_of, self._attempts = credentials_of, LoginAttempts()
        self._sessions = Sessions(settings.http_session_lifetime_ms / 1000, credentials_of, random_bytes)
        self._cookie = f"cordwood-{settings.node_id}"
        """Cookies of all ports of a host are in one place: brokers on one machine have different names."""
        self._is_gated = self.is_required or authorizer is not OPEN_ACCESS
        self._open_paths = OPEN_PATHS | ({METRICS_PATH} if settings.http_metrics_public else set())

    @property
    def may_log_in(self) -> bool:
        """Whether a client without a login can get more rights by one."""
        return not self.is_required and self._authorizer is not OPEN_ACCESS

    def admit(self, request: web.Request) -> Access:
        """Return the access of a request to a path that is open to it. Raises HttpRefusal.

        The rights for a route of the API are checked by the route. A path that is unknown here needs a login.
        """
        path = path_of(request)
        if path in self._open_paths or (request.method, path) in OPEN_ROUTES:
            return self.anonymous(request)
        try:
            access = self.of(request)
        except HttpRefusal as refused:
            self.note_refusal(request, refused)
            raise
        for right in RIGHTS_OF_PATHS.get(path, ()):
            access.check(right, CLUSTER_NAME)
        return access

    def anonymous(self, request: web.Request) -> Access:
        """Return the access of a client that proves nothing."""
        return Access(Identity(host=request.remote or ""), self._authorizer)

    def of(self, request: web.Request) -> Access:
        """Return the access of a request. Raises HttpRefusal if its credentials are wrong, or required and missing."""
        self._check_current()
        given = given_in(request)
        if given is not None:
            return self._by_header(request, given)
        session = self.session_of(request)
        if session is not None:
            return self._by_session(request, session)
        try:
            principal = self._checks.certificate(request)
        except AuthenticationFailed as failed:
            raise unauthenticated(as_sentence(failed.message)) from None
        if principal is not None:
            return Access(Identity(principal, request.remote or "", CERTIFICATE), self._authorizer)
        if self.is_required:
            raise unauthenticated("This broker requires a login: log in, or send a token or a client certificate.")
        return self.anonymous(request)

    def session_of(self, request: web.Request) -> LoginSession | None:
        """Return the session of the request's cookie; None if it has none, or one that has ended."""
        if "Cookie" not in request.headers:
            return None
        secret = request.cookies.get(self.cookie_name(request))
        return None if secret is None else self._sessions.find(secret, self._now())

    def cookie_name(self, request: web.Request) -> str:
        """Return the name of the cookie. Under TLS no other site, port or path of the host can set it."""
        return f"__Host-{self._cookie}" if request.secure else self._cookie

    async def log_in(self, request: web.Request, user: str, password: str) -> tuple[str, Identity, LoginSession]:
        """Check a password. Return the cookie's secret, the identity and the new session. Raises HttpRefusal."""
        try:
            return await self._log_in(request, user, password)
        except HttpRefusal as refused:
            self.note_refusal(request, refused, PASSWORD)
            raise

    async def _log_in(self, request: web.Request, user: str, password: str) -> tuple[str, Identity, LoginSession]:
        self._check_current()
        self._check_privacy(request)
        host = request.remote or ""
        wait_s = self._attempts.begin(host, user, self._now())
        if wait_s > 0:
            raise _too_many(wait_s)
        # From before the check: if the password changes meanwhile, the session has ended at once.
        credentials = self._credentials_of(user)
        principal = await self._principal(user, password, host)
        if principal is None:
            raise unauthenticated(WRONG_PASSWORD)
        self._attempts.succeeded(host, user)
        former = self.session_of(request)
        if former is not None:
            self._sessions.end(former)
        identity = Identity(principal, host, PASSWORD)
        self._audit.note(AuditEvent(AUTHENTICATE, identity, ""))
        secret, session = self._sessions.begin(principal, credentials, self._now())
        return secret, identity, session

    def log_out(self, session: LoginSession) -> None:
        """End a session. Streams that it has opened end, too."""
        self._sessions.end(session)

    def has_tls(self, request: web.Request) -> bool:
        """Return whether the browser uses TLS, to this listener or to the proxy in front of it."""
        return request.secure or (self._without_tls and request.headers.get("X-Forwarded-Proto") == "https")

    async def _principal(self, user: str, password: str, host: str) -> Principal | None:
        check = self._checks.password
        if check is None:
            return None
        try:
            return await check(user, password, host)
        except TooManyChecks:
            raise _too_many(1.0) from None

    def _by_header(self, request: web.Request, given: Given) -> Access:
        self._check_privacy(request)
        try:
            proved = self._proved(given)
        except AuthenticationFailed as failed:
            raise unauthenticated(as_sentence(failed.message)) from None
        mechanism = OAUTHBEARER if given.scheme == BEARER else DELEGATION_TOKEN
        identity = Identity(proved.principal, request.remote or "", mechanism, proved.is_token)
        return Access(identity, self._authorizer, lambda: self._still_holds(given, proved))

    def _proved(self, given: Given) -> Authenticated:
        if given.scheme == BEARER:
            if self._checks.bearer is None:
                raise AuthenticationFailed("Bearer tokens are not set up on this broker")
            return self._checks.bearer(given.secret)
        if self._checks.token is None:
            raise AuthenticationFailed("Delegation tokens are not set up on this broker")
        return self._checks.token(given.user, given.secret)

    def _still_holds(self, given: Given, proved: Authenticated) -> bool:
        """Return whether a token has not expired, and, for a delegation token, not been removed."""
        if proved.expires_at_ms is not None and self._wall_clock() >= proved.expires_at_ms:
            return False
        if not proved.is_token:
            return True
        try:
            return self._proved(given).principal == proved.principal
        except AuthenticationFailed:
            return False

    def _by_session(self, request: web.Request, session: LoginSession) -> Access:
        if request.method not in SAFE_METHODS and not session.is_csrf_token(request.headers.get(CSRF_HEADER, "")):
            sentence = f"Send the session's csrf_token as {CSRF_HEADER}: reload the page, or log in again."
            raise HttpRefusal(403, sentence)
        identity = Identity(session.principal, request.remote or "", PASSWORD)
        return Access(identity, self._authorizer, lambda: self._sessions.use(session, self._now()), session)

    def note_refusal(self, request: web.Request, refused: HttpRefusal, mechanism: str = "") -> None:
        """Take note of refused credentials. No name that the client claims: some people type the password there."""
        identity = Identity(host=request.remote or "", mechanism=mechanism)
        outcome = refused.code.name.upper()
        _events.warning("access.refused", host=identity.host, path=path_of(request), reason=refused.sentence)
        self._audit.note(AuditEvent(AUTHENTICATE, identity, "", outcome, refused.sentence, is_refusal=True))

    def note_handshake(self, host: str, reason: str) -> None:
        """Take note of a TLS handshake that failed."""
        identity = Identity(host=host, mechanism=CERTIFICATE)
        self._audit.note(AuditEvent(AUTHENTICATE, identity, "", FAILED, f"HTTP: {reason}", is_refusal=True))

    def _check_current(self) -> None:
        """Raise HttpRefusal if this broker may know an older password, or an older ACL, than the other brokers."""
        if self._is_gated and not self._is_current():
            sentence = "This broker does not know the newest users and ACLs yet: try again later."
            raise HttpRefusal(503, sentence, ErrorCode.broker_not_available)

    def _check_privacy(self, request: web.Request) -> None:
        """Raise HttpRefusal if others can read the request's password or token on its way."""
        host = request.remote or ""
        if not (request.secure or self._without_tls or is_loopback(host) or host in LOOPBACK_NAMES):
            sentence = (
                "This listener has no TLS, so that others could read a password or token on its way: set"
                " http.security.protocol=SSL, or http.login.without.tls=true if a proxy in front of it has TLS."
            )
            raise HttpRefusal(403, sentence, ErrorCode.sasl_authentication_failed)


def path_of(request: web.Request) -> str:
    """Return the path of the route that a request goes to, with the names of its parameters; empty for no route."""
    resource = request.match_info.route.resource
    return "" if resource is None else resource.canonical


def _denied(principal: Principal, operation: AclOperation, resource: AclResource, name: str) -> HttpRefusal:
    who = "A client without a login" if principal == ANONYMOUS else str(principal)
    what = (
        "the cluster" if resource is AclResource.CLUSTER else f"the {resource.name.lower().replace('_', ' ')} {name!r}"
    )
    return HttpRefusal(403, f"{who} has no right to {operation.name} on {what}.", CODES[resource])


def _too_many(wait_s: float) -> HttpRefusal:
    seconds = int(wait_s) + 1
    sentence = f"Too many logins from this address have failed: try again in {seconds} s."
    return HttpRefusal(429, sentence, ErrorCode.throttling_quota_exceeded, retry_after_s=seconds)
