"""Certificates of a private CA: for a cluster's brokers and for its clients (RFC 5280)."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

BACKDATED = timedelta(minutes=5)
"""A certificate is valid from before its creation on: clocks of machines differ."""


class CertificateMistake(Exception):
    """A key or a certificate that cannot be used: a sentence that says what to do."""


@dataclass(frozen=True, slots=True)
class CertifiedKey:
    """A private key and its certificate."""

    key: EllipticCurvePrivateKey
    certificate: x509.Certificate

    @property
    def key_pem(self) -> bytes:
        """The key, unencrypted, as PKCS 8."""
        return self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )

    @property
    def certificate_pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)


def make_ca(name: str, days: int, now: datetime) -> CertifiedKey:
    """Make a certificate authority, which signs its own certificate."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    usage = _usage(key_cert_sign=True, crl_sign=True)
    builder = (
        _builder(subject, subject, key, days, now)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
    )
    return CertifiedKey(key, builder.sign(key, hashes.SHA256()))


def issue(
    ca: CertifiedKey,
    name: str,
    hosts: Sequence[str],
    days: int,
    *,
    is_client: bool = False,
    now: datetime,
) -> CertifiedKey:
    """Issue a certificate with the common name `name`.

    A broker's is valid as server and as client, since brokers connect to each other; `hosts` are the names and
    addresses that clients connect to. A client's is not valid as server.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    purposes = [ExtendedKeyUsageOID.CLIENT_AUTH, *([] if is_client else [ExtendedKeyUsageOID.SERVER_AUTH])]
    builder = (
        _builder(subject, ca.certificate.subject, key, days, now)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(digital_signature=True), critical=True)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(ca.key.public_key()),
            critical=False,
        )
    )
    if hosts:
        builder = builder.add_extension(x509.SubjectAlternativeName([_general_name(host) for host in hosts]), False)
    return CertifiedKey(key, builder.sign(ca.key, hashes.SHA256()))


def read(key_pem: bytes, certificate_pem: bytes) -> CertifiedKey:
    """Read what `make_ca` or `issue` made. Raises CertificateMistake."""
    try:
        key = serialization.load_pem_private_key(key_pem, password=None)
        certificate = x509.load_pem_x509_certificate(certificate_pem)
    except (ValueError, TypeError) as error:
        raise CertificateMistake(f"it is not an unencrypted PEM file: {error}") from None
    if not isinstance(key, EllipticCurvePrivateKey):
        raise CertificateMistake("its key is not an EC key: use the files that cordwood cert ca made")
    if key.public_key() != certificate.public_key():
        raise CertificateMistake("the key does not belong to the certificate")
    return CertifiedKey(key, certificate)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: EllipticCurvePrivateKey, days: int, now: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _usage(*, digital_signature: bool = False, key_cert_sign: bool = False, crl_sign: bool = False) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=key_cert_sign,
        crl_sign=crl_sign,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)
