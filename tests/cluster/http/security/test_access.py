"""Access to HTTP: nothing without valid credentials, nothing beyond the rights, and no hint of what is hidden."""

import asyncio
import base64
import random
from ssl import PROTOCOL_TLS_SERVER, SSLContext
from typing import Any
from uuid import UUID

import pytest
from access_fixture import REQUIRED, SecuredStory, cookie_of
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from http_fixture import LOOPBACK, HttpStory, run
from structlog.testing import capture_logs

from cordwood.cluster.config.settings import Settings
from cordwood.cluster.http.api.table import ROUTES
from cordwood.cluster.http.refusal import HttpRefusal
from cordwood.cluster.http.security.access import CSRF_HEADER, AccessControl, is_authentication_required
from cordwood.cluster.http.security.credentials import Checks
from cordwood.cluster.http.security.rights import OPEN_PATHS, OPEN_ROUTES, RIGHTS_OF_PATHS, Right
from cordwood.cluster.http.security.sessions import IDLE_S
from cordwood.cluster.http.server import CONNECTIONS_MAX
from cordwood.cluster.metadata.commands import BrokerId, CreateTopic
from cordwood.cluster.security.audit.log import NO_AUDIT
from cordwood.cluster.security.authorizer import OPEN_ACCESS
from cordwood.cluster.security.principal import USER, Principal
from cordwood.cluster.security.sasl.exchange import Authenticated

ALICE = Principal(USER, "alice")
DESCRIBES = "alice DESCRIBE CLUSTER kafka-cluster"
CLOSED = [
    *((route.method, route.path) for route in ROUTES if (route.method, route.path) not in OPEN_ROUTES),
    *(("GET", path) for path in RIGHTS_OF_PATHS),
]


def basic(user: str, secret: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{secret}".encode()).decode()


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


def test_every_route_says_which_rights_it_requires() -> None:
    without = {(route.method, route.path) for route in ROUTES if not route.requires + route.each}
    assert without == {("POST", "/v1/login"), ("POST", "/v1/logout"), ("GET", "/v1/session")}


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


def test_a_login_sets_a_cookie_that_scripts_and_other_sites_do_not_get() -> None:
    async def story() -> None:
        async with SecuredStory() as broker:
            broker.add_user("alice", "secret")
            answer = await broker.log_in("alice", "secret")
            assert answer.status == 200
            attributes = answer.headers["Set-Cookie"].split("; ")[1:]
            assert sorted(attributes) == ["HttpOnly", "Path=/", "SameSite=Strict"]
            assert answer.headers["Cache-Control"] == "no-store"
            session = await broker.ask("/v1/session", **cookie_of(answer))
            assert session.json == answer.json
            assert (session.json["principal"], session.json["mechanism"]) == ("User:alice", "PASSWORD")

    run(story())


def test_a_wrong_password_and_an_unknown_user_get_the_same_answer() -> None:
    async def story() -> None:
        async with SecuredStory() as broker:
            broker.add_user("alice", "secret")
            wrong = await broker.log_in("alice", "Secret")
            unknown = await broker.log_in("mallory", "secret")
            assert (wrong.status, wrong.text) == (unknown.status, unknown.text)
            assert wrong.status == 401
            assert "Set-Cookie" not in wrong.headers

    run(story())


def test_a_login_does_not_take_a_cookie_that_the_client_has_chosen() -> None:
    async def story() -> None:
        async with SecuredStory() as broker:
            broker.add_user("alice", "secret")
            chosen = {"Cookie": "cordwood-1=" + "a" * 43}
            assert cookie_of(await broker.log_in("alice", "secret", **chosen)) != chosen
            assert await broker.status("/v1/session", **chosen) == 401
            first = cookie_of(await broker.log_in("alice", "secret"))
            second = cookie_of(await broker.log_in("alice", "secret", **first))
            assert await broker.status("/v1/session", **first) == 401, "the former session has ended"
            assert await broker.status("/v1/session", **second) == 200

    run(story())


@pytest.mark.parametrize("token", [None, "", "a" * 43, "\N{SNOWMAN}"])
def test_changes_in_a_session_need_its_csrf_token(token: str | None) -> None:
    async def story() -> None:
        async with SecuredStory(DESCRIBES) as broker:
            broker.register(1)
            broker.add_user("alice", "secret")
            session = await broker.session("alice", "secret")
            forged = {"Cookie": session["Cookie"], **({} if token is None else {CSRF_HEADER: token})}
            for method, path in CLOSED:
                answer = await broker.ask(path, method, **forged)
                assert (answer.status == 403 and CSRF_HEADER in answer.text) == (method != "GET"), (method, path)
            assert await broker.status("/v1/session", **session) == 200, "nobody was logged out"
            other = await broker.session("alice", "secret")
            mixed = {**session, CSRF_HEADER: other[CSRF_HEADER]}
            assert await broker.status("/v1/logout", "POST", **mixed) == 403

    run(story())


def test_a_logout_ends_the_session_and_no_other() -> None:
    async def story() -> None:
        async with SecuredStory() as broker:
            broker.add_user("alice", "secret")
            session, other = await broker.session("alice", "secret"), await broker.session("alice", "secret")
            answer = await broker.ask("/v1/logout", "POST", **session)
            assert answer.status == 200
            assert "Max-Age=0" in answer.headers["Set-Cookie"]
            assert await broker.status("/v1/session", **session) == 401
            assert await broker.status("/v1/session", **other) == 200

    run(story())


@pytest.mark.parametrize("how", ["idle", "password", "removal"])
def test_a_session_ends(how: str) -> None:
    async def story() -> None:
        async with SecuredStory() as broker:
            broker.add_user("alice", "secret")
            session = await broker.session("alice", "secret")
            match how:
                case "idle":
                    broker.now_s += IDLE_S
                case "password":
                    broker.add_user("alice", "secret")
                case "removal":
                    broker.remove_user("alice")
            assert await broker.status("/v1/session", **session) == 401

    run(story())


def test_failed_logins_are_limited_and_sessions_are_not() -> None:
    async def story() -> None:
        async with SecuredStory() as broker:
            broker.add_user("alice", "secret")
            session = await broker.session("alice", "secret")
            guesses = [await broker.log_in("alice", f"guess {number}") for number in range(7)]
            assert [guess.status for guess in guesses] == [401] * 5 + [429] * 2
            assert int(guesses[-1].headers["Retry-After"]) > 1
            assert (await broker.log_in("alice", "secret")).status == 429, "the right one is a guess, too"
            assert await broker.status("/v1/session", **session) == 200
            broker.now_s += 15
            assert (await broker.log_in("alice", "secret")).status == 200

    run(story())


def test_too_many_checks_at_a_time_are_no_failure() -> None:
    async def story() -> None:
        async with SecuredStory() as broker:
            broker.add_user("alice", "secret")
            broker.is_busy = True
            assert (await broker.log_in("alice", "secret")).status == 429
            broker.is_busy = False
            assert (await broker.log_in("alice", "secret")).status == 200

    run(story())


@pytest.mark.parametrize(
    ("content", "kind", "status"),
    [
        (b'{"user": "alice", "password": "secret"}', "text/plain", 415),
        (b"user=alice&password=secret", "application/x-www-form-urlencoded", 415),
        (b'{"user": "alice", "password": "' + b"s" * 4096 + b'"}', "application/json", 413),
        (b'{"user": "alice", "password": "secret", "admin": true}', "application/json", 422),
        (b'{"user": "alice", "password": ["secret"]}', "application/json", 422),
        (b'{"user": "", "password": "secret"}', "application/json", 422),
        (b'{"user": "\\ud800", "password": "\\u0000"}', "application/json", 400),
        (b"\xff\xfe", "application/json", 400),
        (b'{"user": "a\\u0000alice", "password": "x\\u0000secret"}', "application/json", 401),
    ],
)
def test_what_is_no_login_is_refused(content: bytes, kind: str, status: int) -> None:
    async def story() -> None:
        async with SecuredStory() as broker:
            broker.add_user("alice", "secret")
            head = f"POST /v1/login HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\n"
            head += f"Content-Length: {len(content)}\r\n"
            answer = await broker.send(head.encode() + b"Connection: close\r\n\r\n" + content)
            assert int(answer.split()[1]) == status, answer

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


def test_a_certificate_is_an_identity_until_a_login_is_another() -> None:
    async def story() -> None:
        async with SecuredStory() as broker:
            broker.certificate = Principal(USER, "CN=robot")
            broker.add_user("alice", "secret")
            assert (await broker.ask("/v1/session")).json["principal"] == "User:CN=robot"
            session = await broker.session("alice", "secret")
            assert (await broker.ask("/v1/session", **session)).json["principal"] == "User:alice"

    run(story())


def add_topics(broker: HttpStory, *names: str) -> None:
    broker.register(1, 2, 3)
    for number, name in enumerate(names, 1):
        assignment = (BrokerId(1), BrokerId(2), BrokerId(3))
        broker.metadata.apply(CreateTopic(UUID(int=100 + number), name, (assignment,), (("retention.ms", "1000"),)))


def test_what_is_hidden_looks_like_what_is_not_there() -> None:
    async def story() -> None:
        async with SecuredStory() as broker:
            add_topics(broker, "orders")
            broker.add_user("alice", "secret")
            session = await broker.session("alice", "secret")
            for route in ROUTES:
                if "{topic}" not in route.path:
                    continue
                there = await broker.ask(route.path.format(topic="orders"), route.method, {}, **session)
                missing = await broker.ask(route.path.format(topic="nothing"), route.method, {}, **session)
                assert (there.status, there.json["code"]) == (403, "TOPIC_AUTHORIZATION_FAILED"), route
                assert missing.status == 403
                assert missing.text == there.text.replace("orders", "nothing")

    run(story())


def right_of(right: Right, name: str) -> str:
    return f"alice {right.operation.name} {right.resource.name} {name}"


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_a_route_is_refused_without_its_right(route: Any) -> None:
    async def story() -> None:
        names = {"topic": "orders", "group": "readers", "transactional_id": "payments", "broker_id": "1"}
        path = route.path.format(**names)
        async with SecuredStory() as broker:
            add_topics(broker, "orders")
            broker.add_user("alice", "secret")
            session = await broker.session("alice", "secret")
            # Every right but those of the route, on the right resources; and those of the route on other resources.
            for right in route.requires:
                name = right.name_in({parameter: f"{text}-of-others" for parameter, text in names.items()})
                broker.authorizer.rights.add(right_of(right, f"{name}x"))
            for other in ROUTES:
                for right in (right for right in other.requires if right not in route.requires):
                    broker.authorizer.rights.add(right_of(right, right.name_in(names)))
            if route.requires:
                answer = await broker.ask(path, route.method, {}, **session)
                assert answer.status == 403, answer.text
                assert answer.json["code"].endswith("_AUTHORIZATION_FAILED")
                assert route.requires[0].operation.name in answer.json["error"]
            for right in route.requires:
                broker.authorizer.rights.add(right_of(right, right.name_in(names)))
            assert await broker.status(path, route.method, {}, **session) not in (401, 403)

    run(story())


@pytest.mark.parametrize("path", sorted(path for path, rights in RIGHTS_OF_PATHS.items() if rights))
def test_a_path_outside_the_api_is_refused_without_its_right(path: str) -> None:
    async def story() -> None:
        async with SecuredStory() as broker:
            add_topics(broker, "orders")
            broker.add_user("alice", "secret")
            session = await broker.session("alice", "secret")
            answer = await broker.ask(path, **session)
            assert (answer.status, answer.json["code"]) == (403, "CLUSTER_AUTHORIZATION_FAILED")
            broker.authorizer.rights.add(DESCRIBES)
            assert await broker.status(path, **session) == 200

    run(story())


def test_lists_have_only_what_the_user_may_see() -> None:
    async def story() -> None:
        rights = ("alice DESCRIBE TOPIC b", "alice DESCRIBE TOPIC d", "alice DESCRIBE_CONFIGS TOPIC d")
        async with SecuredStory(*rights) as broker:
            add_topics(broker, "a", "b", "c", "d")
            broker.add_user("alice", "secret")
            session = await broker.session("alice", "secret")
            topics = (await broker.ask("/v1/topics", **session)).json["topics"]
            assert [(topic["name"], topic["configs"]) for topic in topics] == [
                ("b", {}),
                ("d", {"retention.ms": "1000"}),
            ]
            partitions = (await broker.ask("/v1/partitions", **session)).json["partitions"]
            assert [partition["topic"] for partition in partitions] == ["b", "d"]

    run(story())


def test_nobody_is_let_in_before_the_newest_users_and_rights_are_known() -> None:
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


def test_without_a_required_login_acls_decide_about_anonymous_clients() -> None:
    async def story() -> None:
        async with SecuredStory("ANONYMOUS DESCRIBE TOPIC orders", DESCRIBES, settings=Settings()) as broker:
            add_topics(broker, "orders")
            broker.add_user("alice", "secret")
            assert await broker.status("/v1/topics/orders") == 200
            refused = await broker.ask("/v1/cluster")
            assert (refused.status, refused.json["error"]) == (
                403,
                "A client without a login has no right to DESCRIBE on the cluster.",
            )
            session = await broker.session("alice", "secret")
            assert await broker.status("/v1/cluster", **session) == 200
            assert await broker.status("/v1/topics/orders", **session) == 403

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


def test_the_page_shows_a_name_as_text() -> None:
    async def story() -> None:
        async with SecuredStory() as broker:
            name = '<img src=x onerror=alert(1)>"'
            broker.add_user(name, "secret")
            page = (await broker.ask("/", **await broker.session(name, "secret"))).text
            assert "<img src=x" not in page
            assert "&lt;img src=x onerror=alert(1)&gt;&quot;" in page

    run(story())


def test_no_secret_is_in_the_log_or_in_the_audit_events() -> None:
    async def story() -> None:
        async with SecuredStory(DESCRIBES) as broker:
            broker.register(1)
            broker.add_user("alice", "PLANTED-password")
            with capture_logs() as told:
                session = await broker.session("alice", "PLANTED-password")
                await broker.log_in("PLANTED-password", "wrong PLANTED-password")
                await broker.log_in("alice", "PLANTED-password2")
                for headers in (
                    {"Authorization": "Bearer PLANTED-token"},
                    {"Authorization": basic("id", "PLANTED-secret")},
                    {"Authorization": "Unknown PLANTED-secret"},
                    {"Cookie": session["Cookie"], CSRF_HEADER: "PLANTED-token"},
                    session,
                ):
                    await broker.ask("/v1/logout", "POST", **headers)
                await broker.send(b"GET /v1/session HTTP/1.1\r\nHost: x\r\nAuthorization Bearer PLANTED\r\n\r\n")
                await broker.send(b"PLANTED /v1/session\r\n\r\n")
                await broker.send(b"GET /v1/session HTTP/1.1\r\nAuthorization: " + b"PLANTED" * 2000 + b"\r\n\r\n")
                await broker.send(b"GET /" + b"PLANTED" * 2000 + b" HTTP/1.1\r\n\r\n")
            lines = str(told) + str(broker.audited)
            assert "PLANTED" not in lines
            assert session["Cookie"].partition("=")[2] not in lines
            assert session[CSRF_HEADER] not in lines

    run(story())


def test_refusals_and_logins_are_audited() -> None:
    async def story() -> None:
        async with SecuredStory() as broker:
            broker.add_user("alice", "secret")
            await broker.log_in("alice", "wrong")
            await broker.log_in("alice", "secret")
            await broker.ask("/v1/cluster")
            await broker.ask("/v1/cluster", Authorization="Bearer bad")
            rows = [
                (str(event.identity.principal), event.identity.mechanism, event.outcome, event.is_refusal)
                for event in broker.audited
            ]
            assert rows == [
                ("User:ANONYMOUS", "PASSWORD", "SASL_AUTHENTICATION_FAILED", True),
                ("User:alice", "PASSWORD", "NONE", False),
                ("User:ANONYMOUS", "", "SASL_AUTHENTICATION_FAILED", True),
                ("User:ANONYMOUS", "", "SASL_AUTHENTICATION_FAILED", True),
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


def control_of(settings: Settings) -> AccessControl:
    return AccessControl(
        settings, OPEN_ACCESS, Checks(), lambda _: None, lambda: True, NO_AUDIT, lambda: 0.0, lambda: 0,
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


def test_auto_requires_a_login_as_soon_as_a_listener_does() -> None:
    assert not is_authentication_required(Settings())
    assert not is_authentication_required(Settings(http_authentication="none"))
    assert is_authentication_required(Settings(http_authentication="required"))
