"""The security of a client from its keys, and that no message or repr shows a secret."""

import base64
import json
import pickle
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from cordwood.client.bearer import LIFETIME_S, expires_at_s
from cordwood.client.credentials import Mechanism, NotAuthenticated
from cordwood.client.security import OPEN, SecurityProtocol, client_security
from cordwood.client.tls import WrongSetting

SCRAM = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.username": "alice",
    "sasl.password": "s3cret",
}
JAAS = "org.apache.kafka.common.security.scram.ScramLoginModule"
BEARER = {"security.protocol": "sasl_plaintext", "sasl.mechanisms": "OAUTHBEARER"}


def without(keys: Mapping[str, str], name: str) -> dict[str, str]:
    return {key: value for key, value in keys.items() if key != name}


def test_without_keys_there_is_no_security() -> None:
    assert client_security({"bootstrap.servers": "localhost:9092", "client.id": "x"}) == OPEN
    assert OPEN.protocol is SecurityProtocol.PLAINTEXT
    assert OPEN.credentials() is None


def test_scram_with_tls() -> None:
    security = client_security({**SCRAM, "ssl.ca.location": "ca.pem", "ssl.endpoint.identification.algorithm": "none"})
    assert security.protocol is SecurityProtocol.SASL_SSL
    assert security.tls is not None
    assert (security.tls.ca_location, security.tls.checks_host_name) == ("ca.pem", False)
    credentials = security.credentials()
    assert credentials is not None
    assert credentials.mechanism is Mechanism.SCRAM_SHA_512
    assert (credentials.username, credentials.password) == ("alice", "s3cret")


def test_librdkafka_gets_its_own_keys_back() -> None:
    given = {
        **SCRAM,
        "security.protocol": "sasl_ssl",
        "ssl.ca.location": "ca.pem",
        "ssl.certificate.location": "cert.pem",
        "ssl.key.location": "key.pem",
        "ssl.key.password": "pw",
    }
    assert client_security(given).for_librdkafka() == {
        **given,
        "enable.ssl.certificate.verification": True,
        "ssl.endpoint.identification.algorithm": "https",
    }


def test_the_keys_of_kafkas_own_clients() -> None:
    security = client_security(
        {
            "security.protocol": "SASL_SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": "ca.pem",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": "client.pem",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.jaas.config": rf"""{JAAS} required username="a\"b" password='x' tokenauth=true;""".replace("'", '"'),
        }
    )
    assert security.tls is not None
    assert (security.tls.ca_location, security.tls.certificate_location) == ("ca.pem", "client.pem")
    assert security.for_librdkafka()["ssl.key.location"] == "client.pem"
    credentials = security.credentials()
    assert credentials is not None
    assert (credentials.username, credentials.password, credentials.is_delegation_token) == ('a"b', "x", True)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"security.protocol": "TLS"}, "security.protocol is 'TLS': it can be PLAINTEXT, SSL"),
        ({"ssl.ca.location": "ca.pem"}, "ssl.ca.location has no effect: security.protocol is PLAINTEXT"),
        (without(SCRAM, "security.protocol"), "sasl.mechanism has no effect"),
        ({**SCRAM, "security.protocol": "SSL"}, "sasl.mechanism has no effect"),
        (without(SCRAM, "sasl.mechanism"), "sasl.mechanism is missing: it can be PLAIN, SCRAM"),
        ({**SCRAM, "sasl.mechanism": "GSSAPI"}, "sasl.mechanism is 'GSSAPI'"),
        (without(SCRAM, "sasl.username"), "sasl.username is missing, which SCRAM-SHA-512 needs"),
        (without(SCRAM, "sasl.password"), "sasl.password is missing"),
        ({**SCRAM, "sasl.pasword": "x"}, "there is no sasl.pasword: did you mean sasl.password?"),
        ({**SCRAM, "sasl.mechanisms": "PLAIN"}, "sasl.mechanisms and another spelling of sasl.mechanism"),
        ({**SCRAM, "ssl.truststore.location": "x", "ssl.truststore.type": "JKS"}, "ssl.truststore.type is JKS"),
        ({**SCRAM, "ssl.truststore.password": "x"}, "ssl.truststore.password: certificates in PEM"),
        ({**SCRAM, "ssl.key.location": "key.pem"}, "a key without its certificate"),
        ({**SCRAM, "ssl.certificate.pem": "x"}, "a certificate without its key"),
        ({**SCRAM, "enable.ssl.certificate.verification": "no"}, "enable.ssl.certificate.verification is 'no'"),
        ({**SCRAM, "ssl.endpoint.identification.algorithm": "x"}, "it can be https or none"),
        (
            {
                **without(without(SCRAM, "sasl.username"), "sasl.password"),
                "sasl.mechanism": "PLAIN",
                "sasl.jaas.config": f'{JAAS} required username="a" password="s3cret" tokenauth="true";',
            },
            "a delegation token needs SCRAM",
        ),
        (BEARER, "needs one of sasl.oauthbearer.token and"),
        (
            {**BEARER, "sasl.oauthbearer.token.endpoint.url": "http://id.example.org/"},
            "must begin with https:// or file",
        ),
        (
            {**BEARER, "sasl.oauthbearer.token.endpoint.url": "https://id.example.org/"},
            "needs sasl.oauthbearer.client.id",
        ),
        ({**BEARER, "sasl.oauthbearer.token": "a.b.c", "sasl.oauthbearer.method": "x"}, "it can be oidc"),
    ],
)
def test_a_wrong_setting_is_named(given: Mapping[str, str], message: str) -> None:
    with pytest.raises(WrongSetting) as failed:
        client_security(given)
    assert message in str(failed.value)
    assert "s3cret" not in str(failed.value)


@pytest.mark.parametrize("text", ["s3cret", f"{JAAS} required password s3cret", f'{JAAS} optional password="s3cret";'])
def test_a_malformed_login_is_not_quoted(text: str) -> None:
    with pytest.raises(WrongSetting) as failed:
        client_security({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.jaas.config": text})
    assert "s3cret" not in str(failed.value)


def test_no_repr_has_a_secret() -> None:
    given = {
        **SCRAM,
        "ssl.key.password": "s3cret",
        "ssl.key.pem": "s3cret",
        "ssl.certificate.pem": "x",
        "ssl.keystore.password": "s3cret",
    }
    assert "s3cret" not in repr(client_security(given))
    bearer = {
        **BEARER,
        "sasl.oauthbearer.token.endpoint.url": "https://id.example.org/token",
        "sasl.oauthbearer.client.id": "me",
        "sasl.oauthbearer.client.secret": "s3cret",
    }
    assert "s3cret" not in repr(client_security(bearer))
    token = client_security({**BEARER, "sasl.oauthbearer.token": "s3cret"})
    assert "s3cret" not in repr(token)
    assert "s3cret" not in repr(token.for_librdkafka())
    credentials = token.credentials()
    assert credentials is not None
    assert credentials.bearer_token == "s3cret"


def test_settings_reach_another_process() -> None:
    security = client_security(SCRAM)
    assert pickle.loads(pickle.dumps(security)) == security
    assert hash(pickle.loads(pickle.dumps(security))) == hash(security)


def test_a_token_of_a_file_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "a token"
    url = f"{tmp_path.as_uri()}/a%20token"
    security = client_security({**BEARER, "sasl.oauthbearer.token.endpoint.url": url})
    for token in ("first", "second"):
        file.write_text(f"{token}\n")
        credentials = security.credentials()
        assert credentials is not None
        assert credentials.bearer_token == token


def test_the_end_of_a_token() -> None:
    claims = base64.urlsafe_b64encode(json.dumps({"exp": 1234}).encode()).rstrip(b"=").decode()
    assert expires_at_s(f"e30.{claims}.x") == 1234
    assert expires_at_s("opaque") > time.time() + LIFETIME_S / 2


def test_no_error_of_tokens_is_retried() -> None:
    assert issubclass(NotAuthenticated, OSError)
