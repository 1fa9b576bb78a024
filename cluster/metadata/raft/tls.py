"""TLS of one quorum connection: received bytes in, decrypted bytes out, and the reverse. No socket.

Both sides show a certificate. A certificate proves membership only if `QuorumTls.why_not` accepts it: clients have
certificates of the same authority.
"""

import ssl

from cordwood.cluster.metadata.quorum import QuorumTls

READ_BYTES = 64 << 10
FIRST_BYTE = b"\x16"
"""The first byte of a TLS handshake. A frame without TLS begins with a small length, which is another byte."""


class RaftTlsFailed(Exception):
    """The TLS handshake failed, or a record is invalid. TLS has failed: the peer got an alert, or does not use TLS."""


class CertificateRefused(Exception):
    """The peer's certificate is valid, but not that of a broker of this cluster."""


class TlsStream:
    """The TLS state of one connection. `dialled_host` is the name that the certificate must have; None if incoming."""

    def __init__(self, tls: QuorumTls, dialled_host: str | None) -> None:
        """Take the newest contexts: certificates may have been replaced since the last connection."""
        self._why_not = tls.why_not
        self._received, self._unsent = ssl.MemoryBIO(), ssl.MemoryBIO()
        is_incoming = dialled_host is None
        context = tls.server() if is_incoming else tls.client()
        self._tls = context.wrap_bio(
            self._received, self._unsent, server_side=is_incoming, server_hostname=dialled_host
        )
        self.is_ready = False
        """Whether the TLS handshake has ended and the peer's certificate is accepted."""

    def begin(self) -> None:
        """Begin the handshake of the dialling side. Raises TlsFailed."""
        self._shake_hands()

    def receive(self, data: bytes) -> bytes:
        """Take received bytes, and return the decrypted ones. Raises TlsFailed and CertificateRefused."""
        self._received.write(data)
        if not self.is_ready and not self._shake_hands():
            return b""
        parts = []
        try:
            while part := self._tls.read(READ_BYTES):
                parts.append(part)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            raise RaftTlsFailed(_sentence(error)) from None
        return b"".join(parts)

    def encrypt(self, data: bytes) -> bytes:
        """Return bytes as they go to the socket."""
        self._tls.write(data)
        return self.take_unsent()

    def take_unsent(self) -> bytes:
        """Return the bytes that the handshake has to send."""
        return self._unsent.read()

    def _shake_hands(self) -> bool:
        """Go on with the handshake. Return whether it has ended."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError as error:
            raise RaftTlsFailed(_sentence(error)) from None
        certificate = self._tls.getpeercert(binary_form=True)
        if certificate is None:
            raise RaftTlsFailed("the peer has no certificate")
        self.is_ready = True
        if (reason := self._why_not(certificate)) is not None:
            raise CertificateRefused(reason)
        return True


def _sentence(error: ssl.SSLError) -> str:
    detail = getattr(error, "verify_message", "") or (error.reason or str(error)).replace("_", " ").lower()
    return f"the TLS handshake failed: {detail}"
