"""The client side of TLS: one value with its settings, and the context that they make."""

import os
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

PROBE = "probe"
"""librdkafka's word for the CAs of the system."""


class WrongSetting(ValueError):
    """A setting of a client's security that is unknown, lacks another, or cannot be used. The message has no secret."""


class TlsFailed(ConnectionError):
    """A TLS handshake that fails because of a setting or a certificate. A retry is of no use."""


@dataclass(frozen=True, slots=True)
class ClientTlsSettings:
    """Where the CAs and the client's certificate are. A PEM text takes the place of a file. Its repr has no secret.

    The files are read for each connection, so that certificates can be replaced while a client runs.
    """

    ca_location: str = ""
    """A file or a directory of PEM certificates; empty or "probe" for the CAs of the system."""
    ca_pem: str = ""
    certificate_location: str = ""
    certificate_pem: str = ""
    key_location: str = ""
    key_pem: str = field(default="", repr=False)
    key_password: str = field(default="", repr=False)
    keystore_location: str = ""
    """A PKCS12 file with certificate and key, in place of the four above."""
    keystore_password: str = field(default="", repr=False)
    ciphers: str = ""
    checks_certificate: bool = True
    checks_host_name: bool = True

    def without_certificate(self) -> "ClientTlsSettings":
        """Return the settings without the client's own certificate and key."""
        return replace(
            self,
            certificate_location="",
            certificate_pem="",
            key_location="",
            key_pem="",
            key_password="",
            keystore_location="",
            keystore_password="",
        )

    def context(self) -> ssl.SSLContext:
        """Return a new context. Raises WrongSetting."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.check_hostname = self.checks_certificate and self.checks_host_name
        if not self.checks_certificate:
            context.verify_mode = ssl.CERT_NONE
        if self.ciphers:
            with _named("ssl.cipher.suites", self.ciphers):
                context.set_ciphers(self.ciphers)
        self._trust(context)
        self._present(context)
        return context

    def _trust(self, context: ssl.SSLContext) -> None:
        if self.ca_pem:
            with _named("ssl.ca.pem", "the given text"):
                context.load_verify_locations(cadata=self.ca_pem)
        elif self.ca_location in ("", PROBE):
            context.load_default_certs(ssl.Purpose.SERVER_AUTH)
        else:
            is_directory = os.path.isdir(self.ca_location)
            with _named("ssl.ca.location", self.ca_location):
                context.load_verify_locations(**{"capath" if is_directory else "cafile": self.ca_location})

    def _present(self, context: ssl.SSLContext) -> None:
        """Load the client's certificate, if it has one."""
        if self.keystore_location:
            with _named("ssl.keystore.location", self.keystore_location), _file_of(self._keystore()) as path:
                context.load_cert_chain(path)
            return
        if not (self.certificate_location or self.certificate_pem):
            return
        with ExitStack() as files:
            certificate, key = self.certificate_location, self.key_location or self.certificate_location
            if self.certificate_pem:
                certificate = files.enter_context(_file_of(self.certificate_pem.encode()))
            if self.key_pem:
                key = files.enter_context(_file_of(self.key_pem.encode()))
            with _named("ssl.certificate.location with ssl.key", self.certificate_location or "the given text"):
                # Without a password, OpenSSL would ask for it at the terminal.
                context.load_cert_chain(certificate, key, self.key_password)

    def _keystore(self) -> bytes:
        """Return the PEM text of a PKCS12 file, with the key first."""
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, pkcs12

        password = self.keystore_password.encode() or None
        key, certificate, chain = pkcs12.load_key_and_certificates(Path(self.keystore_location).read_bytes(), password)
        if key is None or certificate is None:
            raise ValueError("it has no certificate with its key")
        parts = [key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())]
        return b"".join([*parts, *(each.public_bytes(Encoding.PEM) for each in (certificate, *chain))])


def explained(error: OSError, address: str) -> OSError:
    """Return the error of a TLS handshake with a sentence that names the setting; TlsFailed if it is certain."""
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in _WRONG_NAMES:
            why = "; connect by a name of the certificate, or set ssl.endpoint.identification.algorithm to none"
        else:
            why = ": ssl.ca.location must have the CA of the broker's certificate"
        return TlsFailed(f"{address} has a certificate that cannot be trusted ({error.verify_message}){why}")
    if not isinstance(error, ssl.SSLError):
        return error
    reason = error.reason or ""
    if reason in _NOT_TLS:
        return TlsFailed(f"{address} does not use TLS: set security.protocol to PLAINTEXT or SASL_PLAINTEXT")
    if "CERTIFICATE" in reason or "UNKNOWN_CA" in reason:
        spoken = reason.lower().replace("_", " ")
        return TlsFailed(
            f"{address} refused the client's certificate ({spoken}): set ssl.certificate.location and ssl.key.location"
            " to a certificate that its truststore has the CA of"
        )
    return error


_WRONG_NAMES = (62, 64)
"""OpenSSL's X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH."""
_NOT_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG")


@contextmanager
def _named(key: str, what: str) -> Iterator[None]:
    """Raise WrongSetting with the key for an error of the file or text."""
    try:
        yield
    except (OSError, ValueError) as error:
        reason = _reason(error)
        raise WrongSetting(f"{key}: {what} cannot be used ({reason})") from None


def _reason(error: OSError | ValueError) -> str:
    if isinstance(error, ssl.SSLError):
        if error.reason == "KEY_VALUES_MISMATCH":
            return "the key is not the one of the certificate"
        return "it is not PEM, or the password of the key is wrong"
    return (getattr(error, "strerror", None) or str(error)).lower()


@contextmanager
def _file_of(pem: bytes) -> Iterator[str]:
    """Return the path of a file in memory, for an interface that takes only files. It is on no disk."""
    descriptor = os.memfd_create("pem")
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(pem)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
