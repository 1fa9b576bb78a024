"""The security of a client: its protocol, TLS and SASL settings as one value, by librdkafka's keys and Kafka's."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from enum import StrEnum
from typing import Any

from cordwood.client.bearer import BearerSource, expires_at_s
from cordwood.client.credentials import Mechanism, SaslCredentials
from cordwood.client.tls import ClientTlsSettings, WrongSetting

FETCH_TOKEN_S = 10.0
TOKEN_USER = "delegation-token:"


class SecurityProtocol(StrEnum):
    """The protocol of a listener, by Kafka's name."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"


KEYS: Mapping[str, tuple[str, ...]] = {
    "security.protocol": (),
    "ssl.ca.location": ("ssl.truststore.location",),
    "ssl.ca.pem": ("ssl.truststore.certificates",),
    "ssl.truststore.type": (),
    "ssl.certificate.location": (),
    "ssl.certificate.pem": ("ssl.keystore.certificate.chain",),
    "ssl.key.location": (),
    "ssl.key.pem": ("ssl.keystore.key",),
    "ssl.key.password": (),
    "ssl.keystore.location": (),
    "ssl.keystore.type": (),
    "ssl.keystore.password": (),
    "ssl.cipher.suites": (),
    "ssl.endpoint.identification.algorithm": (),
    "enable.ssl.certificate.verification": (),
    "sasl.mechanism": ("sasl.mechanisms",),
    "sasl.username": (),
    "sasl.password": (),
    "sasl.jaas.config": (),
    "sasl.oauthbearer.token": (),
    "sasl.oauthbearer.method": (),
    "sasl.oauthbearer.token.endpoint.url": (),
    "sasl.oauthbearer.client.id": ("sasl.oauthbearer.client.credentials.client.id",),
    "sasl.oauthbearer.client.secret": ("sasl.oauthbearer.client.credentials.client.secret",),
    "sasl.oauthbearer.scope": (),
    "sasl.oauthbearer.extensions": (),
    "https.ca.location": (),
    "https.ca.pem": (),
}
"""The keys with their other spellings. Only sasl.oauthbearer.token is neither librdkafka's nor Kafka's."""

REFUSED: Mapping[str, str] = {
    "ssl.truststore.password": "certificates in PEM need no password: give ssl.ca.location a PEM file",
    "sasl.kerberos.service.name": "GSSAPI is not supported",
    "ssl.engine.location": "OpenSSL engines are not supported",
    "sasl.login.callback.handler.class": "set sasl.oauthbearer.token.endpoint.url",
}

MISSPELT = 0.85
"""The similarity from which on an unknown key is a misspelt one. Those of other clients are less similar."""

_LOGIN = re.compile(r"\s*(?P<module>[\w.$]+)\s+required\b(?P<rest>.*?);?\s*", re.DOTALL)
_LOGIN_OPTION = re.compile(r"""\s*(?P<name>[\w.]+)\s*=\s*(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<bare>[^\s";]+))""")
_LOGIN_FORM = 'sasl.jaas.config is malformed: write it as MODULE required username="USER" password="PASSWORD";'


@dataclass(frozen=True, slots=True)
class ClientSecurity:
    """How a client connects: with TLS, with SASL, with both or neither. Its repr has no secret."""

    tls: ClientTlsSettings | None = None
    sasl: SaslCredentials | None = None
    bearer: BearerSource | None = None
    """The source of the token in `sasl`, which is empty, for OAUTHBEARER."""

    @property
    def protocol(self) -> SecurityProtocol:
        """The protocol of the listeners that the client can connect to."""
        if self.sasl is None:
            return SecurityProtocol.PLAINTEXT if self.tls is None else SecurityProtocol.SSL
        return SecurityProtocol.SASL_PLAINTEXT if self.tls is None else SecurityProtocol.SASL_SSL

    def credentials(self) -> SaslCredentials | None:
        """Return the credentials of a new connection, with the current token. Raises OSError."""
        if self.sasl is None or self.bearer is None:
            return self.sasl
        return replace(self.sasl, bearer_token=self.bearer.fetch(FETCH_TOKEN_S), extensions=self.bearer.extensions)

    def for_librdkafka(self) -> dict[str, Any]:
        """Return librdkafka's configuration. It has secrets."""
        return {"security.protocol": self.protocol.lower(), **self._tls_keys(), **self._sasl_keys()}

    def _tls_keys(self) -> dict[str, Any]:
        tls = self.tls
        if tls is None:
            return {}
        checks_name = tls.checks_certificate and tls.checks_host_name
        given = {
            "ssl.ca.location": tls.ca_location,
            "ssl.ca.pem": tls.ca_pem,
            "ssl.certificate.location": tls.certificate_location,
            "ssl.certificate.pem": tls.certificate_pem,
            "ssl.key.location": tls.key_location or ("" if tls.key_pem else tls.certificate_location),
            "ssl.key.pem": tls.key_pem,
            "ssl.key.password": tls.key_password,
            "ssl.keystore.location": tls.keystore_location,
            "ssl.keystore.password": tls.keystore_password,
            "ssl.cipher.suites": tls.ciphers,
        }
        return {
            **{key: value for key, value in given.items() if value},
            "enable.ssl.certificate.verification": tls.checks_certificate,
            "ssl.endpoint.identification.algorithm": "https" if checks_name else "none",
        }

    def _sasl_keys(self) -> dict[str, Any]:
        if self.sasl is None:
            return {}
        if self.bearer is not None:
            return {"sasl.mechanism": str(self.sasl.mechanism), "oauth_cb": _token_callback(self.bearer)}
        return {
            "sasl.mechanism": str(self.sasl.mechanism),
            # librdkafka's SCRAM has no extensions: Cordwood's brokers take the prefix for tokenauth=true.
            "sasl.username": TOKEN_USER * self.sasl.is_delegation_token + self.sasl.username,
            "sasl.password": self.sasl.password,
        }


OPEN = ClientSecurity()
"""No TLS and no SASL."""


def client_security(given: Mapping[str, str]) -> ClientSecurity:
    """Return the security that these keys ask for. Other keys than those of TLS and SASL are left to the caller.

    Raises WrongSetting.
    """
    keys = _Keys(given)
    text = keys.text("security.protocol") or SecurityProtocol.PLAINTEXT
    try:
        protocol = SecurityProtocol(text.upper())
    except ValueError:
        raise WrongSetting(f"security.protocol is {text!r}: it can be {', '.join(SecurityProtocol)}") from None
    has_tls, has_sasl = protocol.endswith("SSL"), protocol.startswith("SASL")
    for prefix, has, wanted in (
        ("ssl.", has_tls, "SSL or SASL_SSL"),
        ("sasl.", has_sasl, "SASL_SSL or SASL_PLAINTEXT"),
    ):
        without = next((key for key in keys.given if key.startswith(prefix) and not has), None)
        if without:
            raise WrongSetting(f"{without} has no effect: security.protocol is {protocol}, set it to {wanted}")
    tls = _tls(keys) if has_tls else None
    if not has_sasl:
        return ClientSecurity(tls)
    sasl = _sasl(keys)
    return ClientSecurity(tls, sasl, _bearer(keys) if sasl.mechanism is Mechanism.OAUTHBEARER else None)


def check_spelling(given: Iterable[str], others: Iterable[str]) -> None:
    """Refuse a key that seems to be a misspelt one of TLS, of SASL or of `others`; it would have no effect.

    A file may have further keys, for other clients. Raises WrongSetting.
    """
    known = {*KEYS, *REFUSED, *(spelling for more in KEYS.values() for spelling in more), *others}
    for key in given:
        if key not in known and (meant := get_close_matches(key, known, n=1, cutoff=MISSPELT)):
            raise WrongSetting(f"there is no {key}: did you mean {meant[0]}?")


class _Keys:
    """The keys of TLS and SASL among the given ones, by either spelling."""

    def __init__(self, given: Mapping[str, str]) -> None:
        spellings = {spelling: name for name, others in KEYS.items() for spelling in (name, *others)}
        self.given: dict[str, str] = {}
        for key, value in given.items():
            if key in REFUSED:
                raise WrongSetting(f"{key}: {REFUSED[key]}")
            if key in spellings and value:
                name = spellings[key]
                if self.given.setdefault(name, value) != value:
                    raise WrongSetting(f"{key} and another spelling of {name} have different values: leave one out")
            elif key.startswith(("ssl.", "sasl.", "security.")) and key not in spellings:
                raise WrongSetting(f"there is no {key}{_hint(key, spellings)}")

    def text(self, name: str) -> str:
        """Return the value, or an empty text."""
        return self.given.get(name, "")

    def flag(self, name: str) -> bool:
        """Return a value that is true unless it is given as false."""
        text = self.text(name).lower() or "true"
        if text not in ("true", "false"):
            raise WrongSetting(f"{name} is {text!r}: it can be true or false")
        return text == "true"


def _tls(keys: _Keys) -> ClientTlsSettings:
    for name in ("ssl.truststore.type", "ssl.keystore.type"):
        kind = keys.text(name).upper()
        if kind and kind != "PEM" and not (kind == "PKCS12" and name == "ssl.keystore.type"):
            raise WrongSetting(f"{name} is {kind}, which is not supported: convert the file to PEM, and set PEM")
    keystore = keys.text("ssl.keystore.location")
    is_pem = keys.text("ssl.keystore.type").upper() == "PEM"
    algorithm = keys.given.get("ssl.endpoint.identification.algorithm", "https").lower()
    if algorithm not in ("https", "none"):
        raise WrongSetting(f"ssl.endpoint.identification.algorithm is {algorithm!r}: it can be https or none")
    settings = ClientTlsSettings(
        ca_location=keys.text("ssl.ca.location"),
        ca_pem=keys.text("ssl.ca.pem"),
        certificate_location=keys.text("ssl.certificate.location") or (keystore if is_pem else ""),
        certificate_pem=keys.text("ssl.certificate.pem"),
        key_location=keys.text("ssl.key.location"),
        key_pem=keys.text("ssl.key.pem"),
        key_password=keys.text("ssl.key.password"),
        keystore_location="" if is_pem else keystore,
        keystore_password=keys.text("ssl.keystore.password"),
        ciphers=keys.text("ssl.cipher.suites"),
        checks_certificate=keys.flag("enable.ssl.certificate.verification"),
        checks_host_name=algorithm == "https",
    )
    if (settings.key_location or settings.key_pem) and not (settings.certificate_location or settings.certificate_pem):
        raise WrongSetting("there is a key without its certificate: set ssl.certificate.location")
    if settings.certificate_pem and not (settings.key_location or settings.key_pem):
        raise WrongSetting("there is a certificate without its key: set ssl.key.location or ssl.key.pem")
    return settings


def _sasl(keys: _Keys) -> SaslCredentials:
    name = keys.text("sasl.mechanism")
    try:
        mechanism = Mechanism(name.upper())
    except ValueError:
        what = f"sasl.mechanism is {name!r}" if name else "sasl.mechanism is missing"
        raise WrongSetting(f"{what}: it can be {', '.join(Mechanism)}") from None
    if mechanism is Mechanism.OAUTHBEARER:
        return SaslCredentials(mechanism)
    login = _login(keys.text("sasl.jaas.config"))
    user = keys.text("sasl.username") or login.get("username", "")
    password = keys.text("sasl.password") or login.get("password", "")
    for key, value in (("sasl.username", user), ("sasl.password", password)):
        if not value:
            raise WrongSetting(f"{key} is missing, which {mechanism} needs")
    is_token = login.get("tokenauth", "").lower() == "true"
    if is_token and mechanism is Mechanism.PLAIN:
        raise WrongSetting("a delegation token needs SCRAM: set sasl.mechanism to SCRAM-SHA-256 or SCRAM-SHA-512")
    return SaslCredentials(mechanism, user, password, is_token)


def _bearer(keys: _Keys) -> BearerSource:
    method = keys.text("sasl.oauthbearer.method").lower()
    if method not in ("", "default", "oidc"):
        raise WrongSetting(f"sasl.oauthbearer.method is {method!r}: it can be oidc, or be left out")
    pairs = [each.partition("=") for each in keys.text("sasl.oauthbearer.extensions").split(",") if each]
    return BearerSource(
        token=keys.text("sasl.oauthbearer.token"),
        endpoint=keys.text("sasl.oauthbearer.token.endpoint.url"),
        client_id=keys.text("sasl.oauthbearer.client.id"),
        client_secret=keys.text("sasl.oauthbearer.client.secret"),
        scope=keys.text("sasl.oauthbearer.scope"),
        extensions=tuple((name.strip(), value.strip()) for name, _, value in pairs),
        ca_location=keys.text("https.ca.location"),
        ca_pem=keys.text("https.ca.pem"),
    )


def _login(text: str) -> dict[str, str]:
    """Return the options of a login module in Kafka's JAAS form. The text has a password, so no error quotes it."""
    if not text:
        return {}
    match = _LOGIN.fullmatch(text)
    if match is None:
        raise WrongSetting(_LOGIN_FORM)
    found, position, rest = {}, 0, match["rest"].rstrip()
    while position < len(rest):
        option = _LOGIN_OPTION.match(rest, position)
        if option is None:
            raise WrongSetting(_LOGIN_FORM)
        quoted = option["quoted"]
        found[option["name"]] = option["bare"] if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
        position = option.end()
    return found


def _token_callback(source: BearerSource) -> Callable[[str], tuple[str, float, str, dict[str, str]]]:
    def fetch(_config: str) -> tuple[str, float, str, dict[str, str]]:
        token = source.fetch(FETCH_TOKEN_S)
        return token, expires_at_s(token), "", dict(source.extensions)

    return fetch


def _hint(key: str, known: Iterable[str]) -> str:
    meant = get_close_matches(key, list(known), n=1)
    return f": did you mean {meant[0]}?" if meant else ""
