"""The security of connections between brokers, from the settings: credentials, certificates, and who is a broker."""

import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
import trustme
from quorum_fixture import run_here

from cordwood.client.credentials import Mechanism, SaslCredentials
from cordwood.cluster.broker.links import link_security, quorum_tls
from cordwood.cluster.config.link_credentials import credentials_of
from cordwood.cluster.config.settings import Settings
from cordwood.cluster.config.sources import ConfigMistakes, load
from cordwood.cluster.kafka.peers import OPEN_LINKS
from cordwood.cluster.security.tls_errors import TlsMistake
from cordwood.cluster.security.tls_listeners import TlsListeners

LISTENERS = ("listeners=PLAINTEXT://127.0.0.1:9092,INTERNAL://127.0.0.1:9093", "inter.broker.listener.name=internal")
VOTERS = "controller.quorum.voters=1@127.0.0.1:1,2@127.0.0.1:2,3@127.0.0.1:3"
AUTHORITY = trustme.CA()


def settings(*overrides: str, protocol: str = "SASL_PLAINTEXT", controllers: str = "PLAINTEXT") -> Settings:
    protocols = f"PLAINTEXT:PLAINTEXT,INTERNAL:{protocol},CONTROLLER:{controllers}"
    return load(overrides=[*LISTENERS, VOTERS, f"listener.security.protocol.map={protocols}", *overrides])


@pytest.mark.parametrize(
    "overrides",
    [
        ("sasl.username=broker", "sasl.password=p w"),
        ("listener.name.internal.sasl.username=broker", "listener.name.internal.sasl.password=p w", "sasl.username=x"),
        (
            "listener.name.internal.scram-sha-256.sasl.jaas.config="
            'org.apache.kafka.common.security.scram.ScramLoginModule required username="broker" password="p w";',
        ),
    ],
    ids=["for all listeners", "for the listener", "in Kafka's form"],
)
def test_the_brokers_own_credentials(overrides: tuple[str, ...]) -> None:
    assert credentials_of(settings(*overrides)) == SaslCredentials(Mechanism.SCRAM_SHA_256, "broker", "p w")


def test_a_listener_with_sasl_needs_credentials() -> None:
    with pytest.raises(ConfigMistakes, match=r"INTERNAL .* has SASL: sasl\.password is missing"):
        settings("sasl.username=broker")


def test_a_single_broker_has_no_links() -> None:
    assert credentials_of(settings("controller.quorum.voters=")) is None


def test_the_password_is_not_shown() -> None:
    given = ("sasl.username=b", "listener.name.internal.sasl.password=p w", "sasl.password=p w")
    assert "p w" not in repr(settings(*given))


def test_a_listener_without_security_has_open_links() -> None:
    assert link_security(settings(protocol="PLAINTEXT"), None) is OPEN_LINKS


@pytest.mark.parametrize("protocol", ["SASL_SSL", "SASL_PLAINTEXT"])
def test_the_quorum_does_not_know_users(protocol: str) -> None:
    with pytest.raises(ConfigMistakes, match=rf"CONTROLLER is {protocol}, but users are in the metadata"):
        settings("sasl.username=b", "sasl.password=p", controllers=protocol)


REACHABLE = "controller.quorum.voters=1@10.0.0.1:1"


@pytest.mark.parametrize(
    ("overrides", "is_safe"),
    [((), True), (("controller.quorum.plaintext.allowed=true",), False)],
    ids=["certificates", "certificates or nothing"],
)
def test_certificates_take_the_place_of_the_secret(overrides: tuple[str, ...], *, is_safe: bool) -> None:
    def loaded() -> Settings:
        return settings("sasl.username=b", "sasl.password=p", REACHABLE, *overrides, controllers="SSL")

    if is_safe:
        loaded()
    else:
        with pytest.raises(ConfigMistakes, match=r"controller\.quorum\.secret is empty"):
            loaded()


@pytest.fixture
def pem(tmp_path: Path) -> Callable[[str], str]:
    """Return a function that writes a key and its certificate, and returns the file's path."""

    def written(name: str) -> str:
        path = tmp_path / f"{name}.pem"
        if not path.exists():
            issued = AUTHORITY.issue_cert("127.0.0.1", common_name=name)
            path.write_bytes(issued.private_key_and_cert_chain_pem.bytes())
        return str(path)

    AUTHORITY.cert_pem.write_to_path(tmp_path / "ca.pem")
    return written


def quorum(directory: Path, keystore: str, *overrides: str) -> tuple[Settings, TlsListeners]:
    found = settings(
        f"ssl.keystore.location={keystore}",
        f"ssl.truststore.location={directory / 'ca.pem'}",
        r"ssl.principal.mapping.rules=RULE:CN=([^,]+).*/$1/",
        *overrides,
        protocol="PLAINTEXT",
        controllers="SSL",
    )
    return found, TlsListeners(found, lambda: 0, run_here)


def der(path: str) -> bytes:
    text = Path(path).read_text()
    return ssl.PEM_cert_to_DER_cert(text[text.index("-----BEGIN CERTIFICATE") :].partition("-----END CERT")[0] + END)


END = "-----END CERTIFICATE-----\n"


@pytest.mark.parametrize(
    ("overrides", "refused"),
    [
        pytest.param((), {"alice", "broker-2"}, id="only the own principal"),
        pytest.param(("super.users=User:broker-2",), {"alice"}, id="and super users"),
        pytest.param(("controller.quorum.secret=s",), set(), id="any peer with the secret"),
    ],
)
def test_who_takes_part_in_the_quorum(
    tmp_path: Path, pem: Callable[[str], str], overrides: tuple[str, ...], refused: set[str]
) -> None:
    tls = quorum_tls(*quorum(tmp_path, pem("broker-1"), *overrides))
    assert tls is not None
    names = ("broker-1", "broker-2", "alice")
    assert {name for name in names if tls.why_not(der(pem(name))) is not None} == refused
    assert tls.server().verify_mode is ssl.CERT_REQUIRED
    assert tls.client().verify_mode is ssl.CERT_REQUIRED
    assert tls.client().check_hostname


def test_a_name_without_a_rule_is_no_broker(tmp_path: Path, pem: Callable[[str], str]) -> None:
    rule = "ssl.principal.mapping.rules=RULE:CN=(broker-1),.*/$1/"
    tls = quorum_tls(*quorum(tmp_path, pem("broker-1"), "controller.quorum.secret=s", rule))
    assert tls is not None
    assert "no rule" in (tls.why_not(der(pem("alice"))) or "")


def test_a_quorum_with_tls_trusts_some_authority(tmp_path: Path, pem: Callable[[str], str]) -> None:
    with pytest.raises(TlsMistake, match="trusts no authority"):
        quorum_tls(*quorum(tmp_path, pem("broker-1"), "ssl.truststore.location="))
