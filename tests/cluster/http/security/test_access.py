"""Access to HTTP: nothing without valid credentials."""

import asyncio
import random
from collections.abc import Callable
from ssl import PROTOCOL_TLS_SERVER, SSLContext

import pytest
from access_fixture import ALICE, CLOSED, DESCRIBES, REQUIRED, SecuredStory, add_topics, basic
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from http_fixture import LOOPBACK, run

from cordwood.cluster.config.settings import Settings
from cordwood.cluster.http.api.table import ROUTES
from cordwood.cluster.http.refusal import HttpRefusal
from cordwood.cluster.http.security.access import AccessControl
from cordwood.cluster.http.security.credentials import Checks
from cordwood.cluster.http.security.rights import OPEN_PATHS, RIGHTS_OF_PATHS
from cordwood.cluster.http.server import CONNECTIONS_MAX
from cordwood.cluster.security.audit.log import NO_AUDIT
from cordwood.cluster.security.authorizer import OPEN_ACCESS
from cordwood.cluster.security.principal import USER, Principal
from cordwood.cluster.security.sasl.exchange import Authenticated, AuthenticationFailed


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Cookie": "cordwood-1=" + "a" * 43},
        {"Cookie": "cordwood-1="},
        {"Authorization": "Bearer none"},
        {"Authorization": "Bearer"},
        {"Authorization": "Negotiate abc"},
        {"Authorization": basic("alice", "secret")},
        {"Authorization": "Basic !!!"},
        {"X-CSRF-Token": "a" * 43},
    ],
    ids=str,
)
def test_nothing_is_served_without_valid_credentials(headers: dict[str, str]) -> None:
    async def story() -> None:
        async with SecuredStory() as broker:
            broker.register(1)
            broker.add_user("alice", "secret")
            await broker.log_in("alice", "secret")
            for method, path in CLOSED:
                answer = await broker.ask(path, method, **headers)
                assert (answer.status, answer.json["code"]) == (401, "SASL_AUTHENTICATION_FAILED"), (method, path)
                assert answer.headers["WWW-Authenticate"].startswith("Bearer ")

    run(story())


@pytest.mark.parametrize(
    "path",
    [
        "/v1/status/", "//v1/status", "/v1%2fstatus", "/v1/./status", "/V1/status", "/metrics/", "/%6detrics",
        "/nowhere",
        "/console/%70ulse", "/console/../v1/status", "/login/../v1/status", "/healthz/../v1/status", "/v1/session?x=1",
        "/console/..%2fpulse",
    ],
)  # fmt: skip
def test_no_spelling_of_a_path_is_a_way_around(path: str) -> None:
    async def story() -> None:
        async with SecuredStory() as broker:
            broker.register(1)
            head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
            first = (await broker.send(head.encode())).split(b"\r\n")[0]
            assert first.split()[1] in (b"401", b"404"), first
            for method in ("HEAD", "OPTIONS", "PUT", "TRACE"):
                assert await broker.status("/v1/status", method) == 401

    run(story())


def test_every_path_is_in_one_table() -> None:
    async def story() -> None:
        async with SecuredStory() as broker:
            found = {(route.method, route.resource.canonical) for route in broker.server.routes}
            found = {(method, path) for method, path in found if method != "HEAD"}
            tables = [
                {(route.method, route.path) for route in ROUTES},
                {("GET", path) for path in OPEN_PATHS},
                {("GET", path) for path in RIGHTS_OF_PATHS},
            ]
            assert sorted(found) == sorted(row for table in tables for row in table)

    run(story())


def test_some_paths_are_open() -> None:
    async def story() -> None:
        async with SecuredStory() as broker:
            for path in ("/healthz", "/readyz", "/login", "/console/login.js", "/console/style.css"):
                assert await broker.status(path) == 200, path
            home = await broker.ask("/")
            assert (home.status, home.headers["Location"]) == (302, "/login")
            assert await broker.status("/metrics") == 401
        settings = Settings(http_authentication="required", http_metrics_public=True)
        async with SecuredStory(settings=settings) as broker:
            assert await broker.status("/metrics") == 200
            assert await broker.status("/v1/status") == 401

    run(story())


def test_a_bearer_token_is_an_identity() -> None:
    async def story() -> None:
        async with SecuredStory(DESCRIBES) as broker:
            broker.register(1)
            broker.tokens["good"] = Authenticated(ALICE, expires_at_ms=broker.now_ms + 1000)
            for scheme in ("Bearer", "bearer", "BEARER"):
                answer = await broker.ask("/v1/session", Authorization=f"{scheme} good")
                assert answer.json["principal"] == "User:alice"
                assert (answer.json["mechanism"], answer.json["csrf_token"]) == ("OAUTHBEARER", None)
            assert await broker.status("/v1/cluster", Authorization="Bearer good") == 200
            assert await broker.status("/v1/logout", "POST", Authorization="Bearer good") == 200, "no browser sends it"

    run(story())


def test_a_delegation_token_is_an_identity() -> None:
    async def story() -> None:
        async with SecuredStory() as broker:
            broker.tokens["id:secret"] = Authenticated(ALICE, is_token=True)
            answer = await broker.ask("/v1/session", Authorization=basic("id", "secret"))
            assert (answer.json["principal"], answer.json["mechanism"]) == ("User:alice", "DELEGATION-TOKEN")

    run(story())


def test_wrong_credentials_are_refused_even_beside_right_ones() -> None:
    async def story() -> None:
        async with SecuredStory() as broker:
            broker.add_user("alice", "secret")
            broker.tokens["good"] = Authenticated(ALICE)
            broker.certificate = ALICE
            session = await broker.session("alice", "secret")
            assert await broker.status("/v1/session", Authorization="Bearer bad", **session) == 401
            two = "GET /v1/session HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer good\r\n"
            answer = await broker.send((two + "Authorization: Bearer bad\r\n\r\n").encode())
            assert answer.split()[1] in (b"400", b"401"), answer

    run(story())


def test_a_password_that_changes_while_it_is_checked_ends_the_session_at_once() -> None:
    async def story() -> None:
        async with SecuredStory() as broker:
            broker.add_user("alice", "secret")
            broker.meanwhile = lambda: broker.add_user("alice", "another")
            session = await broker.session("alice", "secret")
            assert await broker.status("/v1/session", **session) == 401

    run(story())


def test_a_certificate_is_an_identity_until_a_login_is_another() -> None:
    async def story() -> None:
        async with SecuredStory() as broker:
            broker.certificate = Principal(USER, "CN=robot")
            broker.add_user("alice", "secret")
            assert (await broker.ask("/v1/session")).json["principal"] == "User:CN=robot"
            session = await broker.session("alice", "secret")
            assert (await broker.ask("/v1/session", **session)).json["principal"] == "User:alice"

    run(story())


def test_no_client_is_admitted_before_the_newest_users_and_rights_are_known() -> None:
    async def story() -> None:
        async with SecuredStory(DESCRIBES) as broker:
            add_topics(broker, "orders")
            broker.tokens["good"] = Authenticated(ALICE)
            broker.is_current = False
            for method, path in CLOSED:
                assert await broker.status(path, method, Authorization="Bearer good") == 503, path
            broker.add_user("alice", "secret")
            assert (await broker.log_in("alice", "secret")).status == 503
            assert await broker.status("/healthz") == 200
            broker.is_current = True
            assert await broker.status("/v1/status", Authorization="Bearer good") == 200

    run(story())


def test_an_open_broker_without_acls_is_open() -> None:
    async def story() -> None:
        async with SecuredStory(settings=Settings(), has_acls=False) as broker:
            add_topics(broker, "orders")
            broker.is_current = False
            for path in ("/v1/status", "/metrics", "/v1/topics/orders", "/v1/cluster", "/"):
                assert await broker.status(path) == 200
            assert (await broker.ask("/v1/session")).json == {
                "principal": "User:ANONYMOUS", "mechanism": "", "csrf_token": None
            }  # fmt: skip
            assert await broker.status("/v1/logout", "POST") == 200
            assert await broker.status("/v1/cluster", Authorization="Bearer bad") == 401, (
                "wrong credentials are refused"
            )

    run(story())


def test_every_response_has_the_headers_that_protect_browsers() -> None:
    async def story() -> None:
        async with SecuredStory(DESCRIBES) as broker:
            broker.register(1)
            broker.add_user("alice", "secret")
            session = await broker.session("alice", "secret")
            for path in ("/healthz", "/v1/session", "/v1/status", "/nowhere", "/openapi.json", "/", "/login"):
                for headers in ({}, session):
                    answer = await broker.ask(path, **headers)
                    policy = answer.headers["Content-Security-Policy"]
                    assert "frame-ancestors 'none'" in policy
                    assert "unsafe" not in policy
                    assert answer.headers["X-Content-Type-Options"] == "nosniff"
                    assert "Access-Control-Allow-Origin" not in answer.headers
            assert (await broker.ask("/", **session)).headers["Cache-Control"] == "no-store"

    run(story())


def test_refusals_and_logins_are_audited() -> None:
    async def story() -> None:
        async with SecuredStory() as broker:
            broker.add_user("alice", "secret")
            await broker.log_in("alice", "wrong")
            await broker.log_in("alice", "secret")
            await broker.ask("/v1/cluster")
            await broker.ask("/v1/cluster", Authorization="Bearer bad")
            await broker.ask("/", Authorization="Bearer bad")
            await broker.ask("/")
            await broker.ask("/v1/cluster", Host="evil.example")
            rows = [
                (str(event.identity.principal), event.identity.mechanism, event.outcome, event.is_refusal)
                for event in broker.audited
            ]
            assert rows == [
                ("User:ANONYMOUS", "PASSWORD", "SASL_AUTHENTICATION_FAILED", True),
                ("User:alice", "PASSWORD", "NONE", False),
                *[("User:ANONYMOUS", "", "SASL_AUTHENTICATION_FAILED", True)] * 3,
                ("User:ANONYMOUS", "", "INVALID_REQUEST", True),
            ]
            assert {event.identity.host for event in broker.audited} == {LOOPBACK}

    run(story())


def test_strangers_do_not_cut_off_the_connections_of_users() -> None:
    async def story() -> None:
        async with SecuredStory() as broker:
            broker.tokens["good"] = Authenticated(ALICE)
            reader, writer = await asyncio.open_connection(LOOPBACK, broker.port)
            request = b"GET /v1/session HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer good\r\n\r\n"
            writer.write(request)
            assert (await reader.readuntil(b"}")).startswith(b"HTTP/1.1 200")
            strangers = [await asyncio.open_connection(LOOPBACK, broker.port) for _ in range(CONNECTIONS_MAX + 50)]
            assert await broker.status("/healthz") == 200
            writer.write(request)
            assert (await reader.readuntil(b"}")).startswith(b"HTTP/1.1 200"), "the oldest connection is the user's"
            for _, stranger in strangers:
                stranger.close()
            writer.close()

    run(story())


def control_of(
    settings: Settings, checks: Checks | None = None, wall_clock: Callable[[], int] = lambda: 0
) -> AccessControl:
    return AccessControl(
        settings, OPEN_ACCESS, checks or Checks(), lambda _: None, lambda: True, NO_AUDIT, lambda: 0.0, wall_clock,
        random.Random(1).randbytes,
    )  # fmt: skip


def request_from(host: str, has_tls: bool, headers: dict[str, str]) -> web.Request:
    """Return a request of a client at some address, with or without TLS."""
    context = SSLContext(PROTOCOL_TLS_SERVER) if has_tls else None
    return make_mocked_request("GET", "/v1/session", headers, sslcontext=context).clone(remote=host)


@pytest.mark.parametrize(
    ("host", "has_tls", "is_trusted", "status"),
    [
        ("10.0.0.1", False, False, 403),
        ("10.0.0.1", True, False, 401),
        ("10.0.0.1", False, True, 401),
        ("127.0.0.1", False, False, 401),
        ("::1", False, False, 401),
    ],
)
def test_secrets_are_not_taken_over_a_network_without_tls(
    host: str, has_tls: bool, is_trusted: bool, status: int
) -> None:
    control = control_of(Settings(http_login_without_tls=is_trusted))
    with pytest.raises(HttpRefusal) as refused:
        control.of(request_from(host, has_tls, {"Authorization": "Bearer token", "X-Forwarded-For": "127.0.0.1"}))
    assert refused.value.status == status


def test_under_tls_the_cookie_is_this_hosts_alone() -> None:
    request = request_from("10.0.0.1", has_tls=True, headers={})
    assert control_of(REQUIRED).cookie_name(request) == "__Host-cordwood-1"
    assert control_of(REQUIRED).has_tls(request)
    forwarded = request_from("127.0.0.1", has_tls=False, headers={"X-Forwarded-Proto": "https"})
    assert control_of(REQUIRED).cookie_name(forwarded) == "cordwood-1"
    assert not control_of(REQUIRED).has_tls(forwarded)
    assert control_of(Settings(http_login_without_tls=True)).has_tls(forwarded)


@pytest.mark.parametrize("is_token", [False, True])
def test_access_by_a_token_ends_with_the_token(is_token: bool) -> None:
    now_ms, known = [0], {"good": Authenticated(ALICE, is_token=is_token, expires_at_ms=1000)}

    def token(secret: str) -> Authenticated:
        if secret not in known:
            raise AuthenticationFailed("there is no such token")
        return known[secret]

    checks = Checks(bearer=token, token=lambda _id, secret: token(secret))
    control = control_of(REQUIRED, checks, lambda: now_ms[0])
    given = basic("id", "good") if is_token else "Bearer good"
    access = control.of(request_from(LOOPBACK, has_tls=False, headers={"Authorization": given}))
    for now_ms[0], is_valid in ((999, True), (1000, False), (5000, False), (0, True)):
        assert access.is_valid() is is_valid
    known["good"] = Authenticated(Principal(USER, "bob"), is_token=is_token, expires_at_ms=1000)
    assert access.is_valid() is not is_token, "a delegation token is looked up again"
    known.clear()
    assert access.is_valid() is not is_token
