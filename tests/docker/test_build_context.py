"""Static checks of the image and of the compose files, without a build."""

import re
from pathlib import Path

import pytest

from cordwood.cluster.config.listeners import controller_name, listeners_of, protocol_of
from cordwood.cluster.config.settings import Settings
from cordwood.cluster.config.sources import load
from cordwood.cluster.config.super_users import super_users_of
from cordwood.cluster.security.certificate_rules import PrincipalRules

ROOT = Path(__file__).resolve().parents[2]


def test_every_folder_of_the_package_reaches_the_build() -> None:
    let_through = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    folders = {link.name for link in (ROOT / "src" / "cordwood").iterdir() if link.is_symlink()}
    assert folders
    assert folders <= let_through


def settings_of_compose(name: str) -> list[Settings]:
    """Return the settings of each broker in a compose file, in which variables have their defaults."""
    shared, *brokers = (ROOT / name).read_text().split("\n  broker-")
    return [load(environ=_variables(shared) | _variables(broker)) for broker in brokers[:3]]


def _variables(text: str) -> dict[str, str]:
    rows = re.findall(r"^ +(CORDWOOD_\w+): (.+)$", text, re.MULTILINE)
    return {name: re.sub(r"\$\{\w+:-(.*)\}", r"\1", value).replace("$$", "$").strip('"') for name, value in rows}


@pytest.mark.parametrize("name", ["compose.yaml", "compose.secure.yaml"])
def test_the_settings_of_compose_are_settings(name: str) -> None:
    for number, settings in enumerate(settings_of_compose(name), 1):
        assert settings.node_id == number
        assert settings.default_replication_factor == len(settings.controller_quorum_voters) == 3


@pytest.mark.parametrize("name", ["compose.yaml", "compose.secure.yaml"])
def test_everything_is_published_on_loopback_only(name: str) -> None:
    published = re.findall(r'"([^" ]+:\d+:\d+|\d+:\d+)"', (ROOT / name).read_text())
    assert len(published) == 6, "a listener and a console of each broker"
    assert len(set(published)) == 6
    assert all(address.startswith("127.0.0.1:") for address in published)


def test_no_listener_of_the_secure_compose_is_open() -> None:
    for settings in settings_of_compose("compose.secure.yaml"):
        protocols = {listener.name: listener.protocol for listener in listeners_of(settings)}
        assert protocols == {"CLIENTS": "SASL_SSL", "EXTERNAL": "SASL_SSL", "BROKERS": "SSL"}
        assert protocol_of(settings, controller_name(settings)) == "SSL"
        assert (settings.ssl_client_auth, settings.http_security_protocol) == ("required", "SSL")
        assert settings.authorizer_class_name
        principal = PrincipalRules(settings.ssl_principal_mapping_rules).principal(f"CN=broker-{settings.node_id}")
        assert str(principal) in super_users_of(settings)
