"""A TLS server in threads for clients' tests, with certificates that are made for them."""

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

import trustme

Serve = Callable[[socket.socket], None]


class Certificates:
    """A CA, a server's certificate for some names, and a client's, as files of a directory."""

    def __init__(self, directory: Path, *names: str) -> None:
        self.ca = trustme.CA()
        self.server = self.ca.issue_cert(*names)
        client = self.ca.issue_cert("alice@example.org")
        self.ca_file, self.certificate_file, self.key_file = (
            directory / f"{name}.pem" for name in ("ca", "cert", "key")
        )
        self.ca.cert_pem.write_to_path(str(self.ca_file))
        client.cert_chain_pems[0].write_to_path(str(self.certificate_file))
        client.private_key_pem.write_to_path(str(self.key_file))

    def context(self, wanted: ssl.VerifyMode = ssl.CERT_NONE) -> ssl.SSLContext:
        """Return the context of a server."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.server.configure_cert(context)
        self.ca.configure_trust(context)
        context.verify_mode = wanted
        return context


@cache
def another_ca() -> str:
    """Return the certificate of a CA that has issued nothing, in PEM."""
    return trustme.CA().cert_pem.bytes().decode()


@contextmanager
def serving(serve: Serve, context: ssl.SSLContext | None = None) -> Iterator[int]:
    """Serve connections in threads, with TLS if there is a context. Return the port."""
    accepted: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=_accept, args=(listener, serve, context, accepted), daemon=True)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            for each in (listener, *accepted):
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
            thread.join()


def _accept(
    listener: socket.socket, serve: Serve, context: ssl.SSLContext | None, accepted: list[socket.socket]
) -> None:
    while True:
        try:
            plain, _ = listener.accept()
        except OSError:
            return
        accepted.append(plain)
        threading.Thread(target=_serve, args=(plain, serve, context), daemon=True).start()


def _serve(plain: socket.socket, serve: Serve, context: ssl.SSLContext | None) -> None:
    with plain, suppress(OSError), context.wrap_socket(plain, server_side=True) if context else plain as connected:
        serve(connected)
