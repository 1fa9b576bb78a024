"""Values of single listeners: listener.name.NAME.KEY."""

import pytest

from cordwood.cluster.config.sources import ConfigMistakes, load

LISTENERS = (
    "listeners=PLAINTEXT://:9092,LAN://:9093,SASL_SSL://:9094",
    "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,LAN:SSL,SASL_SSL:SASL_SSL",
)
ADVERTISED = "advertised.listeners=PLAINTEXT://a:9092,LAN://a:9093,SASL_SSL://a:9094"


def test_a_listener_has_its_own_value_or_the_one_of_all() -> None:
    settings = load(
        '[listener.name.lan.ssl]\nclient.auth = "required"',
        {"CORDWOOD_LISTENER_NAME_SASL_SSL_SSL_KEYSTORE_LOCATION": "b.pem"},
        [*LISTENERS, ADVERTISED, "ssl.keystore.location=a.pem"],
    )
    assert settings.listener_value("LAN", "ssl.client.auth") == "required"
    assert settings.listener_value("SASL_SSL", "ssl.client.auth") == "none"
    assert settings.listener_value("LAN", "ssl.keystore.location") == "a.pem"
    assert settings.listener_value("SASL_SSL", "ssl.keystore.location") == "b.pem"
    assert settings.has_own_value("LAN", "ssl.client.auth")
    assert not settings.has_own_value("SASL_SSL", "ssl.client.auth")


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("listener.name.wan.ssl.client.auth=none", "listener.name.wan.ssl.client.auth is for a listener that is not"),
        ("listener.name.lan.num.partitions=1", "there is no setting listener.name.lan.num.partitions"),
        ("listener.name.lan.ssl.client.auth=maybe", "must be one of none, requested, required"),
        ("listener.name.=1", "there is no setting listener.name."),
    ],
)
def test_an_override_of_nothing_is_a_mistake(override: str, sentence: str) -> None:
    with pytest.raises(ConfigMistakes, match=sentence):
        load(None, {}, [*LISTENERS, ADVERTISED, override])


def test_secrets_of_a_listener_are_not_shown() -> None:
    settings = load(None, {}, [*LISTENERS, ADVERTISED, "listener.name.lan.ssl.key.password=swordfish"])
    assert "swordfish" not in repr(settings)
