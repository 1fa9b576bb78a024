"""TLS contexts of listeners and of links between brokers, loaded from files that are replaced while the broker runs."""

import os
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import structlog
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12

from cordwood.cluster.config.tls_settings import TLS_1_2, TLS_1_3
from cordwood.cluster.security import credential_files
from cordwood.cluster.security.credential_files import Stamp
from cordwood.cluster.security.distinguished_name import distinguished_name
from cordwood.cluster.security.principal import Identity
from cordwood.cluster.security.tls_errors import TlsMistake
from cordwood.cluster.security.tls_options import CertificateStore, TlsOptions

_VERSIONS = {TLS_1_2: ssl.TLSVersion.TLSv1_2, TLS_1_3: ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
DAY_S = 86_400
EXPIRY_WARNING_DAYS = 14

_events = structlog.get_logger("tls")


@dataclass(frozen=True, slots=True)
class Loaded:
    """Contexts that were made from the files in one go, and the stamps of the files before they were read."""

    server: ssl.SSLContext
    client: ssl.SSLContext
    expires_at_s: float
    subject: str
    stamps: tuple[Stamp | None, ...]
    certificate: bytes
    """The broker's own certificate (DER)."""


class Tls:
    """TLS of one listener. A changed certificate counts for new connections; the others keep theirs."""

    def __init__(self, options: TlsOptions, wall_clock: Callable[[], int]) -> None:
        """Load the files. Blocks. `wall_clock` returns milliseconds since 1970. Raises TlsMistake."""
        self.options, self._wall_clock = options, wall_clock
        self._loaded = self._load()
        self._refused: tuple[Stamp | None, ...] | None = None
        """The stamps of faulty files: each is refused once."""
        self._warn_of_expiry()

    def server_context(self) -> ssl.SSLContext:
        """Return the newest context for accepted connections."""
        return self._loaded.server

    def client_context(self) -> ssl.SSLContext:
        """Return the newest context for connections to this listener of other brokers."""
        return self._loaded.client

    def identity(self, host: str, certificate: bytes | None) -> Identity:
        """Return the identity of a client before SASL, from its certificate (DER). Raises NoRuleMatches."""
        if certificate is None or self.options.is_sasl:
            return Identity(host=host)
        return Identity(self.options.rules.principal(distinguished_name(certificate)), host, "SSL")

    @property
    def certificate(self) -> bytes:
        """The broker's own certificate (DER)."""
        return self._loaded.certificate

    @property
    def expires_at_s(self) -> float:
        """The end of the certificate, in seconds since 1970."""
        return self._loaded.expires_at_s

    def reload(self, *, force: bool = False) -> bool:
        """Load the files again if they have changed. Blocks. Return whether there are new contexts.

        Faulty files are refused with a log line, and the former contexts stay.
        """
        stamps = self._stamps()
        if not force and stamps in (self._loaded.stamps, self._refused):
            return False
        try:
            loaded = self._load()
            if loaded.expires_at_s * 1000 <= self._wall_clock():
                raise TlsMistake(f"{self._where}: the certificate expired on {_date(loaded.expires_at_s)}: renew it.")
        except TlsMistake as mistake:
            self._refused = stamps
            _events.error("tls.not_reloaded", listener=self.options.listener, reason=str(mistake))
            return False
        self._refused, self._loaded = None, loaded
        _events.info(
            "tls.reloaded",
            listener=self.options.listener,
            certificate=loaded.subject,
            expires=_date(loaded.expires_at_s),
        )
        self._warn_of_expiry()
        return True

    @property
    def _where(self) -> str:
        return f"Listener {self.options.listener}"

    def _stamps(self) -> tuple[Stamp | None, ...]:
        return tuple(map(credential_files.stamp, self.options.paths))

    def _warn_of_expiry(self) -> None:
        left_s = self.expires_at_s - self._wall_clock() / 1000
        if left_s < EXPIRY_WARNING_DAYS * DAY_S:
            _events.warning("tls.expires", listener=self.options.listener, expires=_date(self.expires_at_s))

    def _load(self) -> Loaded:
        options, stamps = self.options, self._stamps()
        key, chain = self._key_and_chain()
        trusted = self._trusted()
        server, client = (
            self._context(protocol, key, chain, trusted)
            for protocol in (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT)
        )
        server.verify_mode = _CLIENT_AUTH[options.client_auth]
        # A session that is resumed would skip the check of the client's certificate; TLS 1.3 gives tickets by default.
        server.num_tickets = 0
        server.options |= ssl.OP_NO_TICKET | ssl.OP_CIPHER_SERVER_PREFERENCE
        client.check_hostname = options.checks_host
        client.verify_mode = ssl.CERT_REQUIRED
        if not trusted:
            client.load_default_certs(ssl.Purpose.SERVER_AUTH)
        own = chain[0]
        expires_at_s, subject = own.not_valid_after_utc.timestamp(), own.subject.rfc4514_string()
        encoded = own.public_bytes(serialization.Encoding.DER)
        return Loaded(server, client, expires_at_s, subject, stamps, encoded)

    def _context(
        self, protocol: int, key: bytes, chain: Sequence[x509.Certificate], trusted: Sequence[x509.Certificate]
    ) -> ssl.SSLContext:
        options = self.options
        context = ssl.SSLContext(protocol)
        context.minimum_version = min(_VERSIONS[version] for version in options.versions)
        context.maximum_version = max(_VERSIONS[version] for version in options.versions)
        context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | ssl.VERIFY_X509_TRUSTED_FIRST
        try:
            if options.ciphers:
                context.set_ciphers(options.ciphers)
        except ssl.SSLError:
            raise TlsMistake(f"{self._where}: OpenSSL has none of these ssl.cipher.suites.") from None
        try:
            _load_pair(context, key, _pem(chain))
        except (ssl.SSLError, OSError) as error:
            raise TlsMistake(
                f"{self._where}: the private key and the certificate of the keystore do not belong together, or OpenSSL"
                f" refuses them ({_reason(error)})."
            ) from None
        if trusted:
            context.load_verify_locations(cadata=_pem(trusted).decode())
        return context

    def _key_and_chain(self) -> tuple[bytes, list[x509.Certificate]]:
        """Return the private key as PEM without a password, and the chain with the broker's own certificate first."""
        store, options = self.options.keystore, self.options
        data, where = self._content(store, "keystore")
        try:
            if store.location and store.type == "PKCS12":
                bundle = pkcs12.load_pkcs12(data, store.password.encode() or None)
                if bundle.key is None or bundle.cert is None:
                    raise TlsMistake(f"{where} has no private key with its certificate.")
                key, certificates = bundle.key, [bundle.cert, *bundle.additional_certs]
                chain = [one.certificate for one in certificates]
            else:
                password = (options.key_password or store.password).encode() or None
                pem = _private_key(data)
                if pem is None:
                    raise TlsMistake(f"{where} has no private key: put it into the file, before the certificates.")
                is_encrypted = b"ENCRYPTED" in pem
                key = serialization.load_pem_private_key(pem, password if is_encrypted else None)
                chain = x509.load_pem_x509_certificates(data)
        except TypeError:
            raise TlsMistake(f"{where}: the private key is encrypted: set ssl.key.password.") from None
        except ValueError as error:
            raise TlsMistake(f"{where} cannot be read: {_first_line(error)}.") from None
        assert key is not None
        plain = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        public = key.public_key()
        chain.sort(key=lambda certificate: certificate.public_key() != public)
        return plain, chain

    def _trusted(self) -> list[x509.Certificate]:
        store = self.options.truststore
        if not store:
            return []
        data, where = self._content(store, "truststore")
        try:
            if store.location and store.type == "PKCS12":
                bundle = pkcs12.load_pkcs12(data, store.password.encode() or None)
                found = [one.certificate for one in ([bundle.cert] if bundle.cert else []) + bundle.additional_certs]
            else:
                found = x509.load_pem_x509_certificates(data)
        except ValueError as error:
            raise TlsMistake(f"{where} cannot be read: {_first_line(error)}.") from None
        if not found:
            raise TlsMistake(f"{where} has no certificates.")
        return found

    def _content(self, store: CertificateStore, name: str) -> tuple[bytes, str]:
        """Return the bytes of a store, and its name for sentences."""
        if store.text and not store.location:
            return store.text.encode(), f"{self._where}: the {name} in the settings"
        where = f"{self._where}: the {name} {store.location}"
        try:
            return credential_files.read(store.location), where
        except OSError as error:
            raise TlsMistake(f"{where} cannot be read: {error.strerror or error}.") from None


def _private_key(data: bytes) -> bytes | None:
    """Return the PEM block of the private key."""
    start = data.find(b"-----BEGIN ")
    while start >= 0:
        end = data.find(b"-----END ", start)
        end = data.find(b"-----", end + 9) + 5 if end >= 0 else -1
        if end < 5:
            return None
        if b"PRIVATE KEY-----" in data[start : data.find(b"\n", start)]:
            return data[start:end] + b"\n"
        start = data.find(b"-----BEGIN ", end)
    return None


def _pem(certificates: Sequence[x509.Certificate]) -> bytes:
    return b"".join(certificate.public_bytes(serialization.Encoding.PEM) for certificate in certificates)


def _load_pair(context: ssl.SSLContext, key: bytes, chain: bytes) -> None:
    """Load a key and its chain, which are in memory: Python's ssl reads them from files only."""
    descriptor = os.memfd_create("keystore", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, key + chain)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


def _reason(error: Exception) -> str:
    return str(getattr(error, "reason", None) or error).replace("_", " ").lower()


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0].partition(". ")[0].rstrip(".") or type(error).__name__


def _date(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).date().isoformat()
