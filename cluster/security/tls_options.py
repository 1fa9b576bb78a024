"""The TLS settings of one listener, checked as far as no file is needed."""

from dataclasses import dataclass, field

from cordwood.cluster.config.listeners import HTTP
from cordwood.cluster.config.settings import Settings
from cordwood.cluster.config.tls_settings import TLS_1_2, TLS_1_3
from cordwood.cluster.security.certificate_rules import PrincipalRules
from cordwood.cluster.security.tls_errors import TlsMistake

_SUITES_1_3 = frozenset({"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"})


@dataclass(frozen=True, slots=True)
class CertificateStore:
    """A keystore or truststore: a file, or PEM texts from the settings."""

    type: str
    location: str
    password: str = field(repr=False)
    text: str = field(repr=False)
    """PEM; for a keystore the key and the chain."""

    def __bool__(self) -> bool:
        return bool(self.location or self.text)


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """Everything that a listener's contexts are made of."""

    listener: str
    keystore: CertificateStore
    truststore: CertificateStore
    key_password: str = field(repr=False)
    client_auth: str
    versions: tuple[str, ...]
    ciphers: str
    """OpenSSL's cipher list for TLS 1.2; empty for its default."""
    checks_host: bool
    is_sasl: bool
    rules: PrincipalRules

    @property
    def paths(self) -> tuple[str, ...]:
        """The files to watch."""
        return tuple(store.location for store in (self.keystore, self.truststore) if store.location)


def options_of(settings: Settings, listener: str, *, is_sasl: bool = False) -> TlsOptions:
    """Return the TLS options of a listener, by its name in upper case. Raises TlsMistake."""

    def text(key: str) -> str:
        return str(settings.listener_value(listener, key) or "")

    def words(key: str) -> tuple[str, ...]:
        value = settings.listener_value(listener, key)
        return value if isinstance(value, tuple) else ()

    if bool(text("ssl.keystore.key")) != bool(text("ssl.keystore.certificate.chain")):
        raise TlsMistake(
            f"Listener {listener}: ssl.keystore.key and ssl.keystore.certificate.chain belong together: set both, or"
            " set ssl.keystore.location."
        )
    client_auth = settings.http_ssl_client_auth if listener == HTTP else text("ssl.client.auth")
    if is_sasl and not settings.has_own_value(listener, "ssl.client.auth"):
        client_auth = "none"
    ciphers, versions = _ciphers(listener, words("ssl.cipher.suites"), words("ssl.enabled.protocols"))
    try:
        rules = PrincipalRules(text("ssl.principal.mapping.rules"))
    except ValueError as error:
        raise TlsMistake(f"Listener {listener}: ssl.principal.mapping.rules is {error}.") from None
    options = TlsOptions(
        listener=listener,
        is_sasl=is_sasl,
        rules=rules,
        keystore=CertificateStore(
            text("ssl.keystore.type"),
            text("ssl.keystore.location"),
            text("ssl.keystore.password"),
            f"{text('ssl.keystore.key')}\n{text('ssl.keystore.certificate.chain')}".strip(),
        ),
        truststore=CertificateStore(
            text("ssl.truststore.type"),
            text("ssl.truststore.location"),
            text("ssl.truststore.password"),
            text("ssl.truststore.certificates"),
        ),
        key_password=text("ssl.key.password"),
        client_auth=client_auth,
        versions=versions,
        ciphers=ciphers,
        checks_host=text("ssl.endpoint.identification.algorithm") == "https",
    )
    if not options.keystore:
        raise TlsMistake(
            f"Listener {listener} has no certificate: set ssl.keystore.location to a PEM file with its private key and"
            " certificate chain."
        )
    if client_auth != "none" and not options.truststore:
        raise TlsMistake(
            f"Listener {listener} asks clients for certificates, but trusts no authority: set ssl.truststore.location."
        )
    return options


def _ciphers(listener: str, suites: tuple[str, ...], versions: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """Return OpenSSL's cipher list and the versions that remain. Python's ssl cannot choose single TLS 1.3 suites."""
    newer = _SUITES_1_3.intersection(suites)
    older = [_openssl_name(suite) for suite in suites if suite not in _SUITES_1_3]
    if newer and newer != _SUITES_1_3 and TLS_1_3 in versions:
        raise TlsMistake(
            f"Listener {listener}: ssl.cipher.suites names some suites of TLS 1.3, but only all of them can be used:"
            f" add {', '.join(sorted(_SUITES_1_3 - newer))}, or remove {TLS_1_3} from ssl.enabled.protocols."
        )
    if suites and not newer:
        versions = tuple(version for version in versions if version != TLS_1_3)
    if suites and not older:
        versions = tuple(version for version in versions if version != TLS_1_2)
    if not versions:
        raise TlsMistake(f"Listener {listener}: no version of TLS remains with these ssl.cipher.suites.")
    return ":".join(older), versions


def _openssl_name(suite: str) -> str:
    """Return OpenSSL's name of a TLS 1.2 suite: ECDHE-RSA-AES128-GCM-SHA256."""
    if not suite.startswith("TLS_"):
        return suite
    name = suite.removeprefix("TLS_").replace("_WITH_", "_").replace("AES_128", "AES128").replace("AES_256", "AES256")
    name = name.replace("CHACHA20_POLY1305_SHA256", "CHACHA20_POLY1305").replace("_CBC_", "_")
    return name.removeprefix("RSA_").replace("_", "-")
