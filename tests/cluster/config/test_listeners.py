"""Listeners and advertised listeners: defaults, several of them, and invalid combinations."""

from typing import Any

import pytest

from cordwood.cluster.config.listeners import Listener, ListenerMistake, http_address, http_requires_login, listeners_of
from cordwood.cluster.config.settings import Settings
from cordwood.cluster.metadata.commands import Endpoint


def listeners(*bound: str, advertised: tuple[str, ...] = (), protocols: tuple[str, ...] = ()) -> tuple[Listener, ...]:
    settings = Settings(
        listeners=bound,
        advertised_listeners=advertised,
        listener_security_protocol_map=("PLAINTEXT:PLAINTEXT", *protocols),
    )
    return listeners_of(settings, hostname="box")


def mistake(*bound: str, advertised: tuple[str, ...] = (), protocols: tuple[str, ...] = ()) -> str:
    with pytest.raises(ListenerMistake) as error:
        listeners(*bound, advertised=advertised, protocols=protocols)
    return str(error.value)


def test_a_listener_is_advertised_as_it_is_bound() -> None:
    (listener,) = listeners("PLAINTEXT://10.0.0.5:9092")
    assert (listener.host, listener.port) == ("10.0.0.5", 9092)
    assert listener.endpoint == Endpoint("PLAINTEXT", "10.0.0.5", 9092)
    assert listener.bound_address() == listener.advertised_address() == "10.0.0.5:9092"
    assert listener.warning() is None


def test_several_listeners_advertise_different_addresses() -> None:
    inside, outside = listeners(
        "PLAINTEXT://0.0.0.0:9092",
        "outside://:19092",
        advertised=("PLAINTEXT://broker.lan:9092", "OUTSIDE://example.org:443"),
        protocols=("OUTSIDE:PLAINTEXT",),
    )
    assert inside.bound_address() == "all interfaces:9092"
    assert inside.advertised_address() == "broker.lan:9092"
    assert (outside.name, outside.host, outside.endpoint) == ("OUTSIDE", "", Endpoint("OUTSIDE", "example.org", 443))


def test_an_unnamed_host_is_advertised_by_the_machines_name() -> None:
    (listener,) = listeners("PLAINTEXT://:9092")
    assert (listener.host, listener.advertised_host) == ("", "box")


def test_a_listener_on_all_interfaces_that_advertises_localhost_is_warned_of() -> None:
    (listener,) = listeners("PLAINTEXT://0.0.0.0:9092", advertised=("PLAINTEXT://localhost:9092",))
    assert "Only clients on this machine can" in str(listener.warning())


def test_a_port_of_the_systems_choice_is_advertised_once_it_is_known() -> None:
    (listener,) = listeners("PLAINTEXT://127.0.0.1:0")
    assert listener.bound(40001).endpoint == Endpoint("PLAINTEXT", "127.0.0.1", 40001)
    (fixed,) = listeners("PLAINTEXT://127.0.0.1:0", advertised=("PLAINTEXT://example.org:443",))
    assert fixed.bound(40001).endpoint == Endpoint("PLAINTEXT", "example.org", 443)


def test_addresses_of_the_sixth_version() -> None:
    (listener,) = listeners("PLAINTEXT://[::1]:9092")
    assert (listener.host, listener.port) == ("::1", 9092)
    assert listener.bound_address() == "[::1]:9092"
    assert "set advertised.listeners to PLAINTEXT://HOST:9092" in mistake("PLAINTEXT://[::]:9092")


@pytest.mark.parametrize(
    "address",
    ["", "9092", "localhost:9092", "PLAINTEXT://host", "PLAINTEXT://host:port", "PLAINTEXT://h:70000", "://h:1"],
)
def test_what_is_no_address_is_shown_how_to_write_one(address: str) -> None:
    assert "write it as NAME://HOST:PORT" in mistake(address)


def test_clients_cannot_connect_to_everywhere() -> None:
    sentence = mistake("PLAINTEXT://0.0.0.0:9092")
    assert sentence == (
        "Listener PLAINTEXT cannot advertise 0.0.0.0 to clients: "
        "set advertised.listeners to PLAINTEXT://HOST:9092, with a host that clients can reach."
    )
    assert "cannot advertise" in mistake("PLAINTEXT://:9092", advertised=("PLAINTEXT://:9092",))


def test_other_contradictions() -> None:
    plain = "PLAINTEXT://127.0.0.1:9092"
    assert "add it there, or remove it" in mistake(plain, advertised=("LAN://host:1",))
    assert "add LAN:PROTOCOL" in mistake("LAN://127.0.0.1:9092")
    assert "use one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL" in mistake(plain, protocols=("LAN:TLS",))
    assert "write it as NAME:PROTOCOL" in mistake(plain, protocols=("LAN",))
    assert "two listeners named PLAINTEXT" in mistake(plain, "PLAINTEXT://127.0.0.1:9093")
    assert "two listeners on port 9092" in mistake(plain, "LAN://127.0.0.1:9092", protocols=("LAN:PLAINTEXT",))
    assert "listeners is empty" in mistake()


def test_http_has_one_address_or_none() -> None:
    assert http_address(Settings()) is None
    assert http_address(Settings(http_listen="127.0.0.1:8080")) == ("127.0.0.1", 8080)
    assert http_address(Settings(http_listen="[::1]:0")) == ("::1", 0)


@pytest.mark.parametrize(
    "address", ["8080", ":8080", "http://localhost:8080", "localhost", "localhost:70000", "::1:80"]
)
def test_what_is_no_address_for_http_is_shown_how_to_write_one(address: str) -> None:
    with pytest.raises(ListenerMistake) as refused:
        http_address(Settings(http_listen=address))
    assert str(refused.value) == f"http.listen is {address!r}: write it as HOST:PORT, such as 127.0.0.1:8080."


@pytest.mark.parametrize(
    ("settings", "is_required"),
    [
        ({}, False),
        ({"http_authentication": "none", "listeners": ("SASL_SSL://:9093",)}, False),
        ({"http_authentication": "required"}, True),
        ({"listeners": ("PLAINTEXT://:9092", "SASL_SSL://:9093")}, True),
        ({"listeners": ("OUT://:9093",), "listener_security_protocol_map": ("OUT:SASL_PLAINTEXT",)}, True),
        ({"listeners": ("SSL://:9093",)}, False),
        ({"listeners": ("SSL://:9093",), "ssl_client_auth": "requested"}, False),
        ({"listeners": ("SSL://:9093",), "ssl_client_auth": "required"}, True),
        ({"http_ssl_client_auth": "required"}, True),
    ],
)
def test_http_requires_a_login_as_soon_as_a_listener_does(settings: dict[str, Any], *, is_required: bool) -> None:
    assert http_requires_login(Settings(**settings)) is is_required
