"""HTTP: every route without a login, with forged credentials and without rights; cookies, CSRF, hosts, logins."""

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from closed_cluster import BYSTANDER, SECRETS, valid_token
from kio.schema.errors import ErrorCode
from request_of_each_api import FLIGHTS, PAY, TEAM
from requests_without_rights import Grant

from attempts.attempt import Attempt, Audited, Port, Send, Stranger, unproved
from attempts.exchanges import GUESS
from attempts.forged_tokens import FORGED
from attempts.kafka_apis import LACKING, WITHOUT_RIGHTS, others_than
from cordwood.cluster.http.api.table import ROUTES
from cordwood.cluster.http.security.rights import CODES, OPEN_ROUTES, RIGHTS_OF_PATHS, RouteRight
from cordwood.cluster.security.audited_authorizer import DENIED

UNPROVED = f"401 {ErrorCode.sasl_authentication_failed.name.upper()}"
INVALID = ErrorCode.invalid_request.name.upper()
LIMITED = ErrorCode.throttling_quota_exceeded.name.upper()
NAMES = {"topic": FLIGHTS, "group": TEAM, "transactional_id": PAY, "broker_id": "1", "cut": "yesterday"}
JSON = {"Content-Type": "application/json"}
SAFE = frozenset({"GET", "HEAD"})


def _path(path: str) -> str:
    return path.format_map(NAMES)


def _ask(method: str, path: str, headers: Mapping[str, str], stranger: Stranger) -> str:
    content = None if method in SAFE else b"{}"
    return stranger.http(method, path, content, {**JSON, **headers}).refusal


def _with_bearer(method: str, path: str, make: Callable[[], str], stranger: Stranger) -> str:
    return _ask(method, path, {"Authorization": f"Bearer {make()}"}, stranger)


def http_lacks() -> Iterator[tuple[str, str, str, RouteRight, set[Grant]]]:
    """Yield user, method, path, the right that is lacking, and the rights that the user has, for each route."""
    routes = [(route.method, route.path, route.requires) for route in ROUTES]
    routes += [("GET", path, rights) for path, rights in RIGHTS_OF_PATHS.items()]
    for method, path, rights in routes:
        for right in rights:
            lacking = (right.operation, right.resource)
            user = f"{LACKING}.http.{right.operation.name}.{right.resource.name}"
            yield user, method, path, right, others_than(lacking, set())


def _logged_in(stranger: Stranger, user: str = BYSTANDER) -> tuple[str, str]:
    """Log in. Return the cookie, and the CSRF token."""
    body = json.dumps({"user": user, "password": SECRETS[user]}).encode()
    answer = stranger.http("POST", "/v1/login", body, JSON)
    assert answer.status == 200, answer
    return answer.headers["Set-Cookie"].partition(";")[0], json.loads(answer.content)["csrf_token"]


def _log_in(user: str, password: str, stranger: Stranger) -> str:
    return stranger.http("POST", "/v1/login", json.dumps({"user": user, "password": password}).encode(), JSON).refusal


def _guesses(users: Callable[[int], str], count: int, stranger: Stranger) -> str:
    """Log in until the limit is reached. Return the last refusal."""
    return [_log_in(users(number), f"{GUESS}-{number}", stranger) for number in range(count)][-1]


def _limited_user(stranger: Stranger) -> str:
    """Guess beyond the limit, and then give the right password."""
    _guesses(lambda _: BYSTANDER, 6, stranger)
    return _log_in(BYSTANDER, SECRETS[BYSTANDER], stranger)


def _with_session(method: str, path: str, change: Callable[[str, str], Mapping[str, str]], stranger: Stranger) -> str:
    """Log in, and send a request with headers made of the cookie and the CSRF token."""
    return _ask(method, path, change(*_logged_in(stranger)), stranger)


def _after_logout(stranger: Stranger) -> str:
    cookie, csrf = _logged_in(stranger)
    _ask("POST", "/v1/logout", {"Cookie": cookie, "X-CSRF-Token": csrf}, stranger)
    return _ask("GET", "/v1/session", {"Cookie": cookie}, stranger)


def _csrf_of_another_session(stranger: Stranger) -> str:
    _, other = _logged_in(stranger)
    return _with_session("POST", "/v1/topics", lambda cookie, _: {"Cookie": cookie, "X-CSRF-Token": other}, stranger)


def _basic(content: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(content.encode()).decode()}


def _attempts() -> Iterator[Attempt]:
    def http(name: str, send: Send, refusal: str, audited: Audited | None) -> Attempt:
        return Attempt(f"HTTP: {name}", Port.HTTP, send, refusal, audited)

    closed = [(route.method, route.path) for route in ROUTES if (route.method, route.path) not in OPEN_ROUTES]
    closed += [("GET", path) for path in RIGHTS_OF_PATHS]
    forged, _ = FORGED["alg none"]
    for method, path in closed:
        here = f"{method} {path}"
        yield http(f"{here} without a login", partial(_ask, method, _path(path), {}), UNPROVED, unproved("login"))
        yield http(
            f"{here} with a forged token",
            partial(_with_bearer, method, _path(path), forged),
            UNPROVED,
            unproved("algorithm"),
        )
    for user, method, path, right, _ in http_lacks():
        denied = f"403 {CODES[right.resource].name.upper()}"
        for who, words in ((WITHOUT_RIGHTS, "without rights"), (user, "with other rights")):
            yield http(
                f"{method} {path}, {right.operation.name} on {right.resource.name}, {words}",
                partial(_with_bearer, method, _path(path), lambda who=who: valid_token(who)),  # type: ignore[misc]
                denied,
                Audited(right.operation.name, DENIED, f"User:{who}"),
            )
    for name, (make, reason) in FORGED.items():
        yield http(
            f"a token: {name}", partial(_with_bearer, "GET", "/v1/session", make), UNPROVED, unproved(reason[4:])
        )
    yield from _of_headers(http)
    yield from _of_logins(http)


Http = Callable[[str, Send, str, Audited | None], Attempt]


def _of_headers(http: Http) -> Iterator[Attempt]:
    ask = partial(_ask, "GET", "/v1/cluster")
    for name, headers in {
        "Basic with a user's password": _basic(f"{BYSTANDER}:{SECRETS[BYSTANDER]}"),
        "Basic with an unknown delegation token": _basic("00000000000000000000000000000000:x"),
        "Basic without a colon": _basic("x"),
        "Basic that is not base64": {"Authorization": "Basic !!!"},
        "Bearer without a token": {"Authorization": "Bearer "},
        "another scheme": {"Authorization": "Digest username=admin"},
        "a cookie of no session": {"Cookie": "__Host-cordwood-1=" + "A" * 43},
        "an empty cookie": {"Cookie": "__Host-cordwood-1="},
        "the name of the user in a header": {"X-Forwarded-User": "admin", "Remote-User": "admin"},
        "a client certificate in a header": {"X-SSL-Client-S-DN": "CN=admin", "X-Client-Cert": "admin"},
    }.items():
        yield http(name, partial(ask, headers), UNPROVED, unproved())
    for name, headers in {
        "another host": {"Host": "evil.example.org"},
        "no host name": {"Host": ""},
        "the broker's name as a part of another": {"Host": "localhost.evil.example.org"},
    }.items():
        yield http(name, partial(ask, headers), f"403 {INVALID}", unproved("host name", outcome=INVALID))
    login = partial(_ask, "POST", "/v1/login")
    for name, headers in {
        "a login from a page of another site": {"Origin": "https://evil.example.org"},
        "a login from a page without an origin": {"Origin": "null"},
        "a login that the browser calls cross-site": {"Sec-Fetch-Site": "cross-site"},
    }.items():
        yield http(name, partial(login, headers), f"403 {INVALID}", unproved("may not send", outcome=INVALID))
    yield http(
        "the console's page with a forged token",
        lambda stranger: _with_bearer("GET", "/", FORGED["alg none"][0], stranger),
        "302",
        unproved("algorithm"),
    )


def _of_logins(http: Http) -> Iterator[Attempt]:
    yield http("a login with a wrong password", partial(_log_in, BYSTANDER, GUESS), UNPROVED, unproved("not correct"))
    yield http("a login of an unknown user", partial(_log_in, "nobody", GUESS), UNPROVED, unproved("not correct"))
    yield http("a login with an empty password", partial(_log_in, BYSTANDER, ""), UNPROVED, unproved("not correct"))
    limited = unproved("Too many logins", outcome=LIMITED)
    yield http("logins by guessing one password", partial(_guesses, lambda _: BYSTANDER, 7), f"429 {LIMITED}", limited)
    yield http("logins of many users", partial(_guesses, lambda n: f"user-{n}", 21), f"429 {LIMITED}", limited)
    yield http("the right password after too many guesses", _limited_user, f"429 {LIMITED}", limited)
    no_csrf = unproved("csrf_token", outcome=INVALID)
    for name, change in {
        "a change without the CSRF token": lambda cookie, _: {"Cookie": cookie},
        "a change with a wrong CSRF token": lambda cookie, _: {"Cookie": cookie, "X-CSRF-Token": "x"},
        "a change with an empty CSRF token": lambda cookie, _: {"Cookie": cookie, "X-CSRF-Token": ""},
    }.items():
        yield http(name, partial(_with_session, "POST", "/v1/topics", change), f"403 {INVALID}", no_csrf)
    yield http("a change with the CSRF token of another session", _csrf_of_another_session, f"403 {INVALID}", no_csrf)
    yield http("a logout without the CSRF token", partial(_with_session, "POST", "/v1/logout", _cookie_alone),
               f"403 {INVALID}", no_csrf)  # fmt: skip
    yield http("the CSRF token without the cookie", partial(_with_session, "POST", "/v1/topics", _csrf_alone),
               UNPROVED, unproved())  # fmt: skip
    yield http("a cookie after the logout", _after_logout, UNPROVED, unproved())
    yield http("a cookie with a longer secret", partial(_with_session, "GET", "/v1/session", _longer), UNPROVED,
               unproved())  # fmt: skip
    yield http("a cookie of another broker's name", partial(_with_session, "GET", "/v1/session", _renamed), UNPROVED,
               unproved())  # fmt: skip
    yield http("a cookie with the secret in other letters", partial(_with_session, "GET", "/v1/session", _swapped),
               UNPROVED, unproved())  # fmt: skip


def _cookie_alone(cookie: str, _csrf: str) -> Mapping[str, str]:
    return {"Cookie": cookie}


def _csrf_alone(_cookie: str, csrf: str) -> Mapping[str, str]:
    return {"X-CSRF-Token": csrf}


def _longer(cookie: str, _csrf: str) -> Mapping[str, str]:
    return {"Cookie": cookie + "A"}


def _renamed(cookie: str, _csrf: str) -> Mapping[str, str]:
    return {"Cookie": cookie.replace("-1=", "-2=", 1)}


def _swapped(cookie: str, _csrf: str) -> Mapping[str, str]:
    name, _, secret = cookie.partition("=")
    return {"Cookie": f"{name}={secret.swapcase()}"}


HTTP = tuple(_attempts())
