"""Settings of SASL: mechanisms that exist, and PLAIN without TLS only where it is asked for by name."""

import pytest

from cordwood.cluster.config.sasl import mechanisms_on, session_ms_max
from cordwood.cluster.config.sources import ConfigMistakes, load

TWO_LISTENERS = """
listeners = "PLAINTEXT://127.0.0.1:9092,CLIENTS://127.0.0.1:9093"
listener.security.protocol.map = "PLAINTEXT:PLAINTEXT,CLIENTS:SASL_PLAINTEXT"
"""


def test_scram_is_the_default() -> None:
    assert load(TWO_LISTENERS).sasl_enabled_mechanisms == ("SCRAM-SHA-256", "SCRAM-SHA-512")


@pytest.mark.parametrize("permitted", ["", "PLAINTEXT", "OTHER"])
def test_plain_without_tls_is_refused(permitted: str) -> None:
    overrides = ["sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256", f"sasl.plain.unencrypted.listeners={permitted}"]
    with pytest.raises(ConfigMistakes, match="Listener CLIENTS has no TLS") as mistake:
        load(TWO_LISTENERS, overrides=overrides)
    assert "sasl.plain.unencrypted.listeners" in str(mistake.value)


def test_plain_without_tls_is_allowed_by_name() -> None:
    overrides = ["sasl.enabled.mechanisms=PLAIN", "sasl.plain.unencrypted.listeners=clients"]
    assert load(TWO_LISTENERS, overrides=overrides).sasl_enabled_mechanisms == ("PLAIN",)


def test_plain_is_no_concern_of_a_listener_without_sasl() -> None:
    assert load(overrides=["sasl.enabled.mechanisms=PLAIN"]).sasl_enabled_mechanisms == ("PLAIN",)


@pytest.mark.parametrize("name", ["GSSAPI", "plain", "SCRAM-SHA-1"])
def test_an_unknown_mechanism_is_a_mistake(name: str) -> None:
    with pytest.raises(ConfigMistakes, match=r"sasl\.enabled\.mechanisms is"):
        load(overrides=[f"sasl.enabled.mechanisms={name}"])


def test_a_listener_has_mechanisms_and_sessions_of_its_own() -> None:
    overrides = [
        "listener.name.clients.sasl.enabled.mechanisms=SCRAM-SHA-512",
        "listener.name.clients.connections.max.reauth.ms=5000",
        "listener.name.clients.scram-sha-512.connections.max.reauth.ms=7000",
        "connections.max.reauth.ms=3000",
    ]
    settings = load(TWO_LISTENERS, overrides=overrides)
    assert mechanisms_on(settings, "CLIENTS") == ("SCRAM-SHA-512",)
    assert mechanisms_on(settings, "OTHER") == ("SCRAM-SHA-256", "SCRAM-SHA-512")
    found = [
        session_ms_max(settings, *at) for at in (("CLIENTS", "SCRAM-SHA-512"), ("CLIENTS", "PLAIN"), ("X", "PLAIN"))
    ]
    assert found == [7000, 5000, 3000]


def test_plain_without_tls_is_refused_on_one_listener() -> None:
    with pytest.raises(ConfigMistakes, match="Listener CLIENTS has no TLS"):
        load(TWO_LISTENERS, overrides=["listener.name.clients.sasl.enabled.mechanisms=PLAIN"])
