"""The credentials of a closed local cluster: who gets which certificate, and what is never replaced."""

import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cordwood.client.credentials import Mechanism
from cordwood.client.security import OPEN, SecurityProtocol
from cordwood.cluster.cli import cert
from cordwood.cluster.cli.exits import ExitCode, Failure
from cordwood.cluster.cli.local import layout
from cordwood.cluster.cli.local.directory import ClusterDirectory, LocalBroker
from cordwood.cluster.cli.local.plan import UpOptions, members_wanted
from cordwood.cluster.cli.local.security import LocalSecurity
from cordwood.cluster.config.listeners import inter_broker_listener, listeners_of
from cordwood.cluster.security import certificates


@pytest.fixture
def security(tmp_path: Path) -> LocalSecurity:
    return LocalSecurity(ClusterDirectory(tmp_path / "cluster"))


def lay_out(security: LocalSecurity, wanted: UpOptions) -> list[LocalBroker]:
    """Plan a cluster, and write its credentials and its configuration."""
    members = members_wanted(security.directory, wanted)
    security.provide(members)
    for member in members:
        security.directory.write(member)
    return members


def test_every_listener_of_a_closed_cluster_is_closed(security: LocalSecurity) -> None:
    settings = [member.settings for member in members_wanted(security.directory, UpOptions(secure=True))]
    assert not security.directory.path.exists(), "planning writes nothing"
    for one in settings:
        assert [(listener.name, listener.protocol) for listener in listeners_of(one)] == [
            ("CLIENTS", "SASL_SSL"),
            ("BROKERS", "SSL"),
        ]
        assert inter_broker_listener(one) == "BROKERS"
        assert "CONTROLLER:SSL" in one.listener_security_protocol_map
        assert (one.ssl_client_auth, one.http_security_protocol) == ("required", "SSL")
        assert one.authorizer_class_name
        assert not one.allow_everyone_if_no_acl_found
    assert len({one.delegation_token_secret_key for one in settings}) == 1
    assert len({one.ssl_keystore_location for one in settings}) == 3


def test_the_administrator_has_a_password_that_only_the_owner_reads(security: LocalSecurity) -> None:
    assert security.client() == OPEN
    members = lay_out(security, UpOptions(secure=True))
    client = security.client()
    assert client.protocol is SecurityProtocol.SASL_SSL
    assert client.sasl is not None
    assert (client.sasl.mechanism, client.sasl.username) == (Mechanism.SCRAM_SHA_512, layout.ADMINISTRATOR)
    assert security.first_users is not None
    assert security.first_users.read_text() == f"admin={client.sasl.password}\n"
    secrets = [security.client_file, security.first_users, security.directory.security / cert.CA_KEY]
    for path in (*secrets, *(Path(member.settings.ssl_keystore_location) for member in members)):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    security.forget_first_users()
    assert security.first_users is None


def test_a_second_start_replaces_nothing(security: LocalSecurity) -> None:
    lay_out(security, UpOptions(secure=True))
    before = {path: path.read_bytes() for path in security.directory.path.rglob("*") if path.is_file()}
    lay_out(security, UpOptions())
    assert {path: path.read_bytes() for path in security.directory.path.rglob("*") if path.is_file()} == before


def test_a_broker_that_is_added_gets_a_certificate_of_the_same_ca(security: LocalSecurity) -> None:
    lay_out(security, UpOptions(secure=True))
    *_, added = lay_out(security, UpOptions(brokers=4))
    assert layout.is_secure(added.settings)
    authority = cert.read_ca(security.directory.security).certificate
    path = Path(added.settings.ssl_keystore_location)
    made = certificates.read(path.read_bytes(), path.read_bytes()).certificate
    made.verify_directly_issued_by(authority)
    assert made.subject.rfc4514_string() == "CN=broker-4"


def test_a_certificate_that_ends_soon_is_renewed_and_a_users_own_is_not(
    security: LocalSecurity, tmp_path: Path
) -> None:
    first, second, _ = lay_out(security, UpOptions(secure=True))
    authority = cert.read_ca(security.directory.security)
    ending = certificates.issue(authority, "broker-1", ["127.0.0.1"], days=10, now=datetime.now(UTC))
    cert.write_pair(security.directory.security, "broker-1", ending, may_replace=True)
    cert.write_pair(tmp_path, "own", ending)
    second.config.write_text(
        second.config.read_text().replace(second.settings.ssl_keystore_location, f"{tmp_path}/own.pem")
    )
    lay_out(security, UpOptions())
    renewed = cert.end_of(Path(first.settings.ssl_keystore_location))
    assert renewed is not None
    assert renewed > datetime.now(UTC) + timedelta(days=300)
    assert cert.end_of(tmp_path / "own.pem") == ending.certificate.not_valid_after_utc


def test_an_open_cluster_is_not_closed_by_the_option(security: LocalSecurity) -> None:
    lay_out(security, UpOptions())
    with pytest.raises(Failure, match="without --secure") as refused:
        members_wanted(security.directory, UpOptions(secure=True))
    assert refused.value.exit_code is ExitCode.USAGE
    assert not security.client_file.exists()


def test_settings_of_single_listeners_are_kept(security: LocalSecurity) -> None:
    given = "listener.name.clients.ssl.client.auth"
    lay_out(security, UpOptions(secure=True, overrides=(f"{given}=requested",)))
    for member in members_wanted(security.directory, UpOptions(brokers=4)):
        assert member.settings.listener_value("CLIENTS", "ssl.client.auth") == "requested"
