"""`cordwood ready`: health check of a broker over HTTP."""

import typer

from cordwood.cluster.cli.exits import ExitCode, Failure
from cordwood.cluster.cli.settings import ConfigFile, Overrides, settings_of

ANSWER_TIMEOUT_S = 5.0
_WILDCARDS = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}
"""Addresses by which a broker that listens on all interfaces is reached from its own machine."""


def ready(config: ConfigFile = None, overrides: Overrides = None) -> None:
    """Check whether the broker with these settings is ready.

    For health checks. Reads the same configuration as `cordwood serve` and asks that broker over HTTP (http.listen).
    Exits with 0 if the broker is in contact with the controller and serves requests.
    """
    from cordwood.cluster.config.listeners import http_address

    address = http_address(settings_of(config, overrides))
    if address is None or address[1] == 0:
        raise Failure(
            "http.listen has no port: set it to HOST:PORT, which the health check connects to.", ExitCode.USAGE
        )
    host, port = address
    typer.echo(answer(_WILDCARDS.get(host, host), port))


def answer(host: str, port: int) -> str:
    """Return the broker's answer if it is ready. Raises Failure with its reason if it is not."""
    from http.client import HTTPConnection, HTTPException

    connection = HTTPConnection(host, port, timeout=ANSWER_TIMEOUT_S)
    try:
        connection.request("GET", "/readyz")
        response = connection.getresponse()
        said = response.read().decode().strip()
    except (OSError, HTTPException) as error:
        raise Failure(f"no broker answers over HTTP at {host}:{port} ({error}).", ExitCode.UNREACHABLE) from None
    finally:
        connection.close()
    if response.status != 200:
        raise Failure(said)
    return said
