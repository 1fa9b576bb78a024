"""Certificates from files: what is loaded, what is refused with a sentence, and what a reload changes."""

import asyncio
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12
from structlog.testing import capture_logs
from tls_fixture import NOW_MS, Recorder, Stores, TlsServer, pem_of

from cordwood.cluster.security.certificate_rules import NoRuleMatches
from cordwood.cluster.security.principal import ANONYMOUS, Principal
from cordwood.cluster.security.tls import Tls
from cordwood.cluster.security.tls_dial import connect
from cordwood.cluster.security.tls_errors import TlsMistake, TlsRefused
from cordwood.cluster.security.tls_options import options_of


@pytest.fixture
def stores(tmp_path: Path) -> Stores:
    return Stores(tmp_path)


def handshake(tls: Tls, context: ssl.SSLContext) -> ssl.SSLObject:
    """Do a handshake in memory. Return the server's side. Raises SSLError."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = tls.server_context().wrap_bio(to_server, to_client, server_side=True)
    client = context.wrap_bio(to_client, to_server, server_hostname="localhost")
    for _ in range(4):
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return server


def mistake(stores: Stores, **overrides: str) -> str:
    with pytest.raises(TlsMistake) as refused:
        stores.tls(**overrides)
    return str(refused.value)


def test_a_changed_certificate_counts_for_new_connections(stores: Stores) -> None:
    async def scenario() -> None:
        tls = stores.tls()
        server = await TlsServer(tls).start()
        before, after = Recorder(), Recorder()
        await connect(lambda: before, "127.0.0.1", server.port, stores.client_context(), timeout_s=30)
        assert not tls.reload()
        stores.renew()
        assert tls.reload()
        await connect(lambda: after, "127.0.0.1", server.port, stores.client_context(), timeout_s=30)
        first, second = (
            one.transport.get_extra_info("ssl_object").getpeercert(binary_form=True) for one in (before, after)
        )
        assert first != second
        before.transport.write(b"still there")
        await asyncio.wait_for(server.accepted[0].made.wait(), 30)
        while server.accepted[0].received != b"still there":
            await asyncio.sleep(0.005)
        server.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("fault", ["gone", "torn", "rubbish", "another key", "expired"])
def test_a_faulty_file_is_refused_once_and_the_former_certificate_stays(stores: Stores, fault: str) -> None:
    tls = stores.tls()
    context, good = tls.server_context(), stores.keystore.read_bytes()
    other = stores.ca.issue_cert("localhost")
    match fault:
        case "gone":
            stores.keystore.unlink()
        case "torn":
            stores.keystore.write_bytes(good[:400])
        case "rubbish":
            stores.keystore.write_bytes(b"rubbish")
        case "another key":
            stores.keystore.write_bytes(other.private_key_pem.bytes() + good[good.index(b"-----BEGIN CERT") :])
        case "expired":
            end = datetime.fromtimestamp(NOW_MS / 1000, UTC) - timedelta(days=1)
            stores.renew(not_before=end - timedelta(days=9), not_after=end)
    with capture_logs() as lines:
        assert not tls.reload()
        assert not tls.reload()
    (line,) = [line for line in lines if line["event"] == "tls.not_reloaded"]
    assert "Listener SSL: the" in line["reason"] or "Listener SSL: the certificate expired on" in line["reason"]
    assert tls.server_context() is context
    stores.renew()
    assert tls.reload()


def test_clients_of_a_removed_authority_get_in_no_longer(stores: Stores, tmp_path: Path) -> None:
    tls = stores.tls(ssl_client_auth="required")
    alice = stores.client_context(stores.ca.issue_cert("alice@example.org"))
    alice.maximum_version = ssl.TLSVersion.TLSv1_2
    assert handshake(tls, alice).getpeercert()
    (tmp_path / "other").mkdir()
    stores.truststore.write_bytes(Stores(tmp_path / "other").truststore.read_bytes())
    assert tls.reload()
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(tls, alice)


def test_sessions_are_not_resumed(stores: Stores) -> None:
    tls = stores.tls()
    assert tls.server_context().num_tickets == 0
    assert tls.server_context().options & ssl.OP_NO_TICKET


def test_what_is_missing_gets_a_sentence(stores: Stores, tmp_path: Path) -> None:
    assert "has no certificate: set ssl.keystore.location" in mistake(stores, ssl_keystore_location="")
    assert "cannot be read: No such file" in mistake(stores, ssl_keystore_location=str(tmp_path / "none"))
    assert "has no private key" in mistake(stores, ssl_keystore_location=str(stores.truststore))
    assert "trusts no authority: set ssl.truststore.location" in mistake(
        stores, ssl_truststore_location="", ssl_client_auth="required"
    )
    assert "ssl.keystore.certificate.chain belong together" in mistake(stores, ssl_keystore_key="x")
    assert "add TLS_AES_256_GCM_SHA384" in mistake(
        stores, ssl_cipher_suites="TLS_AES_128_GCM_SHA256,TLS_CHACHA20_POLY1305_SHA256"
    )
    assert "OpenSSL has none of these" in mistake(stores, ssl_cipher_suites="TLS_ROT13")
    assert "is no regular expression" in mistake(stores, ssl_principal_mapping_rules="RULE:(/$1/")
    (tmp_path / "large").write_bytes(bytes((1 << 20) + 1))
    assert "larger than 1048576 bytes" in mistake(stores, ssl_truststore_location=str(tmp_path / "large"))


def test_encrypted_keys_and_pkcs12(stores: Stores, tmp_path: Path) -> None:
    issued = stores.ca.issue_cert("localhost")
    key = serialization.load_pem_private_key(issued.private_key_pem.bytes(), None)
    chain = b"".join(one.bytes() for one in issued.cert_chain_pems)
    encrypted = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )
    # The key may follow the certificates.
    stores.keystore.write_bytes(chain + encrypted)
    assert "the private key is encrypted: set ssl.key.password" in mistake(stores)
    wrong = mistake(stores, ssl_key_password="wrong-one")
    assert "cannot be read" in wrong
    assert "wrong-one" not in wrong
    handshake(stores.tls(ssl_key_password="secret"), stores.client_context())
    certificate = x509.load_pem_x509_certificates(chain)[0]
    bundle = pkcs12.serialize_key_and_certificates(
        b"broker",
        key,  # type: ignore[arg-type]
        certificate,
        None,
        serialization.BestAvailableEncryption(b"secret"),
    )
    (tmp_path / "broker.p12").write_bytes(bundle)
    options = {"ssl_keystore_type": "PKCS12", "ssl_keystore_location": str(tmp_path / "broker.p12")}
    handshake(stores.tls(ssl_keystore_password="secret", **options), stores.client_context())
    assert "cannot be read" in mistake(stores, ssl_keystore_password="wrong-one", **options)


def test_pem_texts_in_the_settings(stores: Stores) -> None:
    issued = stores.ca.issue_cert("localhost")
    tls = stores.tls(
        ssl_keystore_location="",
        ssl_keystore_key=issued.private_key_pem.bytes().decode(),
        ssl_keystore_certificate_chain=issued.cert_chain_pems[0].bytes().decode(),
    )
    handshake(tls, stores.client_context())
    assert "PRIVATE" not in repr(tls.options)


@pytest.mark.parametrize(
    ("suites", "version", "cipher"),
    [
        ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "TLSv1.2", "ECDHE-ECDSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "TLSv1.2", "ECDHE-ECDSA-CHACHA20-POLY1305"),
        ("ECDHE-ECDSA-AES256-GCM-SHA384", "TLSv1.2", "ECDHE-ECDSA-AES256-GCM-SHA384"),
        ("TLS_AES_128_GCM_SHA256,TLS_AES_256_GCM_SHA384,TLS_CHACHA20_POLY1305_SHA256", "TLSv1.3", None),
    ],
)
def test_cipher_suites_by_both_names(stores: Stores, suites: str, version: str, cipher: str | None) -> None:
    server = handshake(stores.tls(ssl_cipher_suites=suites), stores.client_context())
    assert server.version() == version
    assert cipher is None or (server.cipher() or ("",))[0] == cipher


def test_old_versions_of_tls_are_refused(stores: Stores) -> None:
    newest = stores.tls(ssl_enabled_protocols="TLSv1.3")
    old = stores.client_context()
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError, match=r"(?i)unsupported.protocol|version"):
        handshake(newest, old)


def test_the_client_side_checks_the_host_unless_configured_not_to(stores: Stores) -> None:
    async def scenario() -> None:
        server = await TlsServer(stores.tls()).start("0.0.0.0")
        with pytest.raises(TlsRefused, match="mismatch"):
            await connect(Recorder, "127.0.0.2", server.port, stores.tls().client_context(), timeout_s=30)
        lax = stores.tls(ssl_endpoint_identification_algorithm="")
        await connect(Recorder, "127.0.0.2", server.port, lax.client_context(), timeout_s=30)
        server.close()

    asyncio.run(scenario())


def test_the_identity_of_a_client_certificate(stores: Stores) -> None:
    issued = stores.ca.issue_cert("a@b", common_name="alice", organization_name="Acme, Inc")
    der = ssl.PEM_cert_to_DER_cert(issued.cert_chain_pems[0].bytes().decode())
    rules = r"RULE:^CN=([a-z]+),.*$/$1/"
    tls = stores.tls(ssl_client_auth="requested", ssl_principal_mapping_rules=rules)
    identity = tls.identity("10.0.0.1", der)
    assert (identity.principal, identity.host, identity.mechanism) == (Principal("User", "alice"), "10.0.0.1", "SSL")
    assert tls.identity("10.0.0.1", None).principal == ANONYMOUS
    sasl = Tls(
        options_of(stores.settings(listener_name_ssl_ssl_client_auth="required"), "SSL", is_sasl=True), lambda: 0
    )
    assert sasl.options.client_auth == "required"
    assert sasl.identity("10.0.0.1", der).principal == ANONYMOUS
    strict = stores.tls(ssl_client_auth="requested", ssl_principal_mapping_rules="RULE:^CN=bob$/bob/")
    with pytest.raises(NoRuleMatches, match="alice"):
        strict.identity("10.0.0.1", der)


def test_a_sasl_listener_asks_for_certificates_only_by_its_own_value(stores: Stores) -> None:
    assert options_of(stores.settings(ssl_client_auth="required"), "SSL", is_sasl=True).client_auth == "none"


def test_the_first_certificate_is_the_one_of_the_key(stores: Stores) -> None:
    leaf = stores.ca.issue_cert("localhost")
    authority = stores.ca.cert_pem.bytes()
    stores.keystore.write_bytes(leaf.private_key_pem.bytes() + authority + leaf.cert_chain_pems[0].bytes())
    handshake(stores.tls(), stores.client_context())
    assert pem_of(leaf)


def test_another_authority_is_not_trusted(stores: Stores) -> None:
    tls = stores.tls(ssl_client_auth="requested")
    stranger = stores.client_context(trustme.CA().issue_cert("alice@example.org"))
    stranger.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(tls, stranger)
