"""Certificates: of another authority, expired, not for clients, self-signed, or with a name that no rule knows."""

import ssl
import warnings
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial

import trustme
from closed_cluster import ClosedCluster, certificate_context
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from attempts.attempt import CLOSED, Attempt, Audited, Port, Stranger, closed_after, not_of_the_quorum, unproved
from cordwood.cluster.kafka.api_keys import ApiKey

HOST = "127.0.0.1"
Make = Callable[[ClosedCluster], trustme.LeafCert]
METADATA = (10).to_bytes(4, "big") + ApiKey.METADATA.to_bytes(2, "big") + b"\x00\x01\x00\x00\x00\x01\xff\xff"
GET = b"GET /v1/cluster HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"


def _of_another_authority(_: ClosedCluster) -> trustme.LeafCert:
    return trustme.CA().issue_cert(HOST, common_name="broker")


def _expired(cluster: ClosedCluster) -> trustme.LeafCert:
    return cluster.authority.issue_cert(HOST, common_name="broker", not_after=datetime(2020, 1, 1, tzinfo=UTC))


def _not_valid_yet(cluster: ClosedCluster) -> trustme.LeafCert:
    later = datetime.now(UTC) + timedelta(days=10)
    return cluster.authority.issue_cert(HOST, common_name="broker", not_before=later)


def _signed(purpose: x509.ObjectIdentifier, issuer: trustme.CA | None) -> trustme.LeafCert:
    """Return a certificate with the name of the brokers and one purpose. It is self-signed without an issuer."""
    key = ec.generate_private_key(ec.SECP256R1())
    names = {NameOID.COMMON_NAME: "broker", NameOID.ORGANIZATION_NAME: "o"}
    subject = x509.Name([x509.NameAttribute(kind, name) for kind, name in names.items()])
    now = datetime.now(UTC)
    signer = x509.load_pem_x509_certificate(issuer.cert_pem.bytes()).subject if issuer else subject
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(signer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.ExtendedKeyUsage([purpose]), critical=True)
    )
    private = issuer._private_key if issuer else key
    made = builder.sign(private, hashes.SHA256())
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return trustme.LeafCert(pem, made.public_bytes(Encoding.PEM), [])


def _for_servers(cluster: ClosedCluster) -> trustme.LeafCert:
    return _signed(ExtendedKeyUsageOID.SERVER_AUTH, cluster.authority)


def _self_signed(_: ClosedCluster) -> trustme.LeafCert:
    return _signed(ExtendedKeyUsageOID.CLIENT_AUTH, None)


def _without_a_rule(cluster: ClosedCluster) -> trustme.LeafCert:
    return cluster.authority.issue_cert(HOST, common_name="UPPER-CASE")


REFUSED: dict[str, Make] = {
    "of another authority": _of_another_authority,
    "that has expired": _expired,
    "that is not valid yet": _not_valid_yet,
    "for servers alone": _for_servers,
    "that is self-signed": _self_signed,
}
"""Certificates with the name of the brokers that TLS itself refuses."""


def _sent_with(make: Make | None, port: Port, content: bytes, stranger: Stranger) -> str:
    tls = stranger.cluster.trusting if make is None else certificate_context(stranger.cluster, make(stranger.cluster))
    return closed_after(stranger.send(port, content, tls))


def _sent_without_tls(port: Port, content: bytes, stranger: Stranger) -> str:
    return closed_after(stranger.send(port, content))


def _sent_with_old_tls(port: Port, content: bytes, stranger: Stranger) -> str:
    tls = ssl.create_default_context(cafile=str(stranger.cluster.ca_file))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        tls.maximum_version, tls.minimum_version = ssl.TLSVersion.TLSv1_1, ssl.TLSVersion.TLSv1
    tls.set_ciphers("DEFAULT:@SECLEVEL=0")
    return closed_after(stranger.send(port, content, tls))


def _attempts() -> Iterator[Attempt]:
    ports: tuple[tuple[Port, bytes, Audited], ...] = (
        (Port.REPLICATION, METADATA, unproved("listener INTERNAL")),
        (Port.QUORUM, b"", not_of_the_quorum("")),
        (Port.HTTP, GET, unproved("HTTP")),
    )
    for port, content, audited in ports:
        for name, make in REFUSED.items():
            send = partial(_sent_with, make, port, content)
            yield Attempt(f"{port.name}: a certificate {name}", port, send, CLOSED, audited)
        yield Attempt(f"{port.name}: no TLS", port, partial(_sent_without_tls, port, GET), CLOSED, audited)
    for port, content, audited in ports:
        old = partial(_sent_with_old_tls, port, content)
        yield Attempt(f"{port.name}: TLS 1.1", port, old, CLOSED, audited)
    for port, content, audited in ports[:2]:
        bare = partial(_sent_with, None, port, content)
        yield Attempt(f"{port.name}: no certificate", port, bare, CLOSED, audited)
    unknown = partial(_sent_with, _without_a_rule, Port.REPLICATION, METADATA)
    yield Attempt("a certificate that no mapping rule matches", Port.REPLICATION, unknown, CLOSED, unproved("INTERNAL"))
    for name, content in {
        "no TLS": METADATA,
        "a TLS record of the wrong type": b"\x17\x03\x01\x00\x64" + bytes(100),
    }.items():
        yield Attempt(f"KAFKA: {name}", Port.KAFKA, partial(_sent_without_tls, Port.KAFKA, content), CLOSED,
                      unproved("listener CLIENTS"))  # fmt: skip
    yield Attempt("KAFKA: TLS 1.1", Port.KAFKA, partial(_sent_with_old_tls, Port.KAFKA, METADATA), CLOSED,
                  unproved("listener CLIENTS"))  # fmt: skip


CERTIFICATES = tuple(_attempts())
