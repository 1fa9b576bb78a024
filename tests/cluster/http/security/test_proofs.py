"""Proofs over HTTP as a broker checks them: bearer and delegation tokens, certificates, and headers that are none."""

import base64
import http.client
import random
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
from access_fixture import REQUIRED, SecuredStory, basic
from aiohttp.test_utils import make_mocked_request
from broker_fixture import RunningBroker, free_port
from http_client import HttpAnswer
from http_fixture import run
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict

from cordwood.cluster.broker import http_access
from cordwood.cluster.http.refusal import HttpRefusal
from cordwood.cluster.http.security.access import AccessControl
from cordwood.cluster.http.security.credentials import Checks
from cordwood.cluster.metadata.credentials import DelegationToken
from cordwood.cluster.metadata.image import Image
from cordwood.cluster.security.audit.log import NO_AUDIT
from cordwood.cluster.security.authorizer import OPEN_ACCESS
from cordwood.cluster.security.bearer import BearerToken, TokenRefused, TokenRules
from cordwood.cluster.security.delegation_tokens import DelegationTokens
from cordwood.cluster.security.jwks import KeyCache, RefreshTimes
from cordwood.cluster.security.jwt import validate
from cordwood.cluster.security.sasl.exchange import AuthenticationFailed

NOW_MS = 1_000_000


class Tokens:
    """Delegation tokens of a cluster with one token of alice."""

    def __init__(self, key: str = "key of the cluster") -> None:
        self.now_ms = NOW_MS
        token = DelegationToken("id-1", "User:alice", "User:alice", (), 0, NOW_MS + 5000, NOW_MS + 1000)
        self.image = Image(delegation_tokens={"id-1": token})
        self.tokens = DelegationTokens(key, lambda: self.image, lambda: self.now_ms)
        self.secret = self.tokens.password("id-1") if key else "none"


def test_a_delegation_token_is_proved_by_its_secret() -> None:
    known = Tokens()
    proved = http_access._token("id-1", known.secret, known.tokens)
    assert (str(proved.principal), proved.is_token, proved.expires_at_ms) == ("User:alice", True, NOW_MS + 1000)


@pytest.mark.parametrize("how", ["secret", "empty", "id", "other id", "expired", "removed", "disabled", "not ascii"])
def test_another_delegation_token_is_refused(how: str) -> None:
    known = Tokens("" if how == "disabled" else "key of the cluster")
    token_id, secret = "id-1", known.secret
    match how:
        case "secret":
            secret = "x" + secret[1:]
        case "empty":
            secret = ""
        case "id":
            token_id = "id-2"
        case "other id":
            token_id, secret = "id-2", known.tokens.password("id-2")
        case "expired":
            known.now_ms += 1000
        case "removed":
            known.image = Image()
        case "not ascii":
            secret = "\N{SNOWMAN}"
    with pytest.raises(AuthenticationFailed):
        http_access._token(token_id, secret, known.tokens)


@pytest.mark.parametrize("sent", [b"\xff\xfe", b"\xed\xa0\x80", "\N{SNOWMAN}".encode(), b"a.b.c", b".", b"\x01"])
@pytest.mark.parametrize("header", [b"Authorization: Bearer ", b"Authorization: Basic ", b"Cookie: cordwood-1="])
def test_no_bytes_in_a_header_are_a_way_in_or_a_failure(header: bytes, sent: bytes) -> None:
    async def story() -> None:
        async with SecuredStory() as broker:
            head = b"GET /v1/session HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
            answer = await broker.send(head + header + sent + b"\r\n\r\n")
            assert answer.split()[1] in (b"400", b"401"), answer

    run(story())


@pytest.mark.parametrize("token", ["\udcff", "a.b.\udcff", "\N{SNOWMAN}", "", "...."])
def test_a_text_that_is_no_token_is_refused(token: str) -> None:
    keys = KeyCache(RefreshTimes(3600, 1, 10), random.Random(1))
    with pytest.raises(AuthenticationFailed):
        http_access._bearer(token, lambda text: validate(text, keys, TokenRules(), NOW_MS))


def test_a_bearer_token_is_its_subject_until_it_expires() -> None:
    proved = http_access._bearer("a.b.c", lambda _: BearerToken("alice", NOW_MS))
    assert (str(proved.principal), proved.is_token, proved.expires_at_ms) == ("User:alice", False, NOW_MS)

    def refuse(_token: str) -> BearerToken:
        raise TokenRefused("the token has expired")

    with pytest.raises(AuthenticationFailed, match="has expired"):
        http_access._bearer("a.b.c", refuse)


def failing(*_: Any) -> Any:
    raise AuthenticationFailed("no")


CONTROL = AccessControl(
    REQUIRED, OPEN_ACCESS, Checks(bearer=failing, token=failing), lambda _: None, lambda: True, NO_AUDIT, lambda: 0.0,
    lambda: 0, random.Random(1).randbytes,
)  # fmt: skip
TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
SCHEMES = st.sampled_from(["Bearer ", "Basic ", "basic\t", "BEARER", "Negotiate ", ""])
VALUES = st.text(st.characters(exclude_characters="\r\n\0", exclude_categories=["Cs"]), max_size=200)
ENCODED = st.binary(max_size=60).map(lambda raw: base64.b64encode(raw).decode())


@given(scheme=SCHEMES, value=VALUES | ENCODED, cookie=VALUES, method=st.sampled_from(["GET", "POST"]))
def test_no_header_is_a_way_in_or_a_failure(scheme: str, value: str, cookie: str, method: str) -> None:
    headers = CIMultiDict({"Authorization": scheme + value, "Cookie": f"cordwood-1={cookie}", "X-CSRF-Token": cookie})
    with pytest.raises(HttpRefusal) as refused:
        CONTROL.of(make_mocked_request(method, "/v1/session", headers, sslcontext=TLS))
    assert refused.value.status == 401
    del headers["Authorization"]
    with pytest.raises(HttpRefusal) as refused:
        CONTROL.of(make_mocked_request(method, "/v1/session", headers))
    assert refused.value.status == 401


class TlsBroker:
    """A broker with TLS for HTTP, which asks for client certificates."""

    def __init__(self, directory: Path) -> None:
        self.authority = trustme.CA()
        authorities, chain = directory / "ca.pem", directory / "broker.pem"
        self.authority.cert_pem.write_to_path(str(authorities))
        self.authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(chain))
        self.robot = directory / "robot.pem"
        issued = self.authority.issue_cert("robot.example", common_name="robot")
        issued.private_key_and_cert_chain_pem.write_to_path(str(self.robot))
        self.address = f"127.0.0.1:{free_port()}"
        settings = {
            "http.listen": self.address,
            "http.authentication": "required",
            "http.security.protocol": "SSL",
            "http.ssl.client.auth": "requested",
            "ssl.keystore.location": str(chain),
            "ssl.truststore.location": str(authorities),
            "ssl.principal.mapping.rules": "RULE:.*CN=([a-z]+).*/$1/,DEFAULT",
        }
        self.broker = RunningBroker(directory / "data", **settings)

    def ask(self, method: str, path: str, certificate: Path | None = None, **headers: str) -> HttpAnswer:
        context = ssl.create_default_context()
        self.authority.configure_trust(context)
        if certificate is not None:
            context.load_cert_chain(certificate)
        connection = http.client.HTTPSConnection(self.address, timeout=30, context=context)
        try:
            body = b'{"user": "alice", "password": "x"}' if method == "POST" else None
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            return HttpAnswer(response.status, dict(response.headers), response.read())
        finally:
            connection.close()


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsBroker]:
    started = TlsBroker(tmp_path_factory.mktemp("tls"))
    started.broker.start()
    yield started
    started.broker.stop()


def test_a_client_certificate_is_its_principal(tls: TlsBroker) -> None:
    session = tls.ask("GET", "/v1/session", tls.robot).json
    assert (session["principal"], session["mechanism"]) == ("User:robot", "SSL")
    tls.ask("GET", "/v1/session").refused(401)
    tls.ask("GET", "/v1/session", tls.robot, Authorization=basic("id", "secret")).refused(401)
    tls.ask("POST", "/v1/login", **{"Content-Type": "application/json"}).refused(401, "not correct")
    assert tls.ask("GET", "/healthz").status == 200


def test_a_certificate_of_another_authority_is_no_proof(tls: TlsBroker, tmp_path: Path) -> None:
    stranger = tmp_path / "stranger.pem"
    trustme.CA().issue_cert("robot.example", common_name="robot").private_key_and_cert_chain_pem.write_to_path(
        str(stranger)
    )
    with pytest.raises((ssl.SSLError, ConnectionError, http.client.HTTPException)):
        tls.ask("GET", "/v1/session", stranger)
