"""Login and logout over HTTP: cookies, CSRF tokens, limits, and no secret in any log."""

import pytest
from access_fixture import CLOSED, DESCRIBES, SecuredStory, basic, cookie_of
from http_fixture import run
from structlog.testing import capture_logs

from cordwood.cluster.http.security.access import CSRF_HEADER
from cordwood.cluster.http.security.sessions import IDLE_S


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
            assert await broker.status("/v1/session", **session) == 200, "no session was ended"
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
            with capture_logs() as reported:
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
            lines = str(reported) + str(broker.audited)
            assert "PLANTED" not in lines
            assert session["Cookie"].partition("=")[2] not in lines
            assert session[CSRF_HEADER] not in lines

    run(story())
