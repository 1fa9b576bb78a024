"""Errors of TLS handshakes, as sentences for the log."""

import ssl

NOT_TLS = "the client does not use TLS: its security.protocol must be SSL or SASL_SSL, or https for HTTP"

_OF_SERVER = {
    "NO_SHARED_CIPHER": "the client supports none of the broker's cipher suites (ssl.cipher.suites)",
    "UNSUPPORTED_PROTOCOL": "the client supports none of the broker's TLS versions (ssl.enabled.protocols)",
    "VERSION_TOO_LOW": "the client supports none of the broker's TLS versions (ssl.enabled.protocols)",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client has sent no certificate, and ssl.client.auth is required",
}
_ALERTS = {
    "UNKNOWN_CA": "its truststore lacks the authority that signed",
    "CERTIFICATE_UNKNOWN": "it does not accept",
    "BAD_CERTIFICATE": "it does not accept",
    "CERTIFICATE_EXPIRED": "it considers as expired",
    "CERTIFICATE_REQUIRED": "it demands a certificate, beside",
}


class TlsRefused(ConnectionError):
    """A TLS connection to another broker was not made: a sentence."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)
        self.strerror = sentence


class TlsMistake(Exception):
    """Certificates, keys or settings of TLS that cannot be used: a sentence that says what to do."""


def sentence_of(error: Exception, *, is_server: bool) -> str:
    """Return the reason of a failed handshake, for the side that saw the error."""
    peer, own = ("client", "this broker's certificate") if is_server else ("broker", "this broker's certificate")
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the {peer}'s certificate is refused: {error.verify_message}"
    reason = str(getattr(error, "reason", None) or error)
    if is_server and reason in _OF_SERVER:
        return _OF_SERVER[reason]
    for alert, sentence in _ALERTS.items():
        if reason.endswith(f"ALERT_{alert}"):
            return f"the {peer} has refused the connection: {sentence} {own}"
    return f"the TLS handshake with the {peer} failed: {reason.replace('_', ' ').lower()}"
