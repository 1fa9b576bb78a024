"""`cordwood serve` and `cordwood ready`: one broker in the foreground, and its health check over HTTP."""

import gc
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cordwood.cluster.cli import unused_libraries
from cordwood.cluster.cli.exits import ExitCode, Failure, reason_of

if TYPE_CHECKING:
    import ssl

    from cordwood.cluster.config.settings import Settings
    from cordwood.cluster.metadata.commands import ScramUpsertion

ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        metavar="FILE",
        envvar="CORDWOOD_CONFIG",
        show_envvar=True,
        help="A TOML file with Kafka's key names.",
    ),
]

Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", "-s", metavar="KEY=VALUE", help="Override the file and the environment; may be repeated."),
]

FirstUsers = Annotated[
    list[str] | None,
    typer.Option(
        "--add-scram",
        metavar="USER",
        help="A user with whom a new cluster begins: NAME=PASSWORD, SCRAM-SHA-256=[name=NAME,password=PASSWORD], or"
        " @FILE with one of these in each line. Without effect once the cluster exists. May be repeated.",
    ),
]

ANSWER_TIMEOUT_S = 5.0
_WILDCARDS = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}
"""Addresses by which a broker that listens on all interfaces is reached from its own machine."""


def settings_of(config: Path | None, overrides: list[str] | None) -> "Settings":
    """Return the settings from file, environment and options. Raises Failure (exit code 2) with every mistake."""
    from cordwood.cluster.config.sources import ConfigMistakes, load

    toml = None if config is None else _text_of(config)
    try:
        return load(toml, os.environ, overrides or [])
    except ConfigMistakes as mistakes:
        raise Failure("\ncordwood: ".join(mistakes.sentences), ExitCode.USAGE) from None


def _text_of(config: Path) -> str:
    """Return a configuration file's text. Raises Failure with exit code 2."""
    try:
        return config.read_text(encoding="utf-8")
    except OSError as error:
        raise Failure(f"cannot read the configuration file {config}: {error.strerror}.", ExitCode.USAGE) from None
    except UnicodeDecodeError:
        raise Failure(f"the configuration file {config} is not UTF-8 text.", ExitCode.USAGE) from None


def first_users_of(texts: list[str]) -> "tuple[ScramUpsertion, ...]":
    """Return the credentials of --add-scram. Raises Failure (exit code 2)."""
    from cordwood.cluster.security.sasl.first_users import UserMistake, first_users

    lines = list[str]()
    for text in texts:
        if not text.startswith("@"):
            lines.append(text)
            continue
        try:
            lines += [line for line in Path(text[1:]).read_text(encoding="utf-8").splitlines() if line.strip()]
        except (OSError, UnicodeDecodeError) as error:
            raise Failure(f"cannot read the users in {text[1:]}: {reason_of(error)}.", ExitCode.USAGE) from None
    try:
        return first_users(lines, os.urandom)
    except UserMistake as mistake:
        raise Failure(f"--add-scram: {mistake}", ExitCode.USAGE) from None


Processes = Annotated[
    int,
    typer.Option(
        "--processes",
        min=1,
        max=64,
        help="Run this many brokers, one for each core: with consecutive node.ids and ports from those of the settings,"
        " a directory each in log.dirs, and the host's name as broker.rack, so that no two replicas of a partition are"
        " on this host.",
    ),
]


def serve(
    config: ConfigFile = None,
    overrides: Overrides = None,
    add_scram: FirstUsers = None,
    processes: Processes = 1,
) -> None:
    """Run one broker until SIGTERM or Ctrl-C, or several with --processes.

    Settings come from the file, then from CORDWOOD_* in the environment (CORDWOOD_LOG_DIRS is log.dirs), then from
    --set. With none of them the broker listens on 127.0.0.1:9092 and keeps its data in ./cordwood-data.
    """
    # Hardly anything that is made by imports is garbage. The broker enables garbage collection.
    gc.disable()
    unused_libraries.leave_out()
    settings = settings_of(config, overrides)
    users = first_users_of(add_scram or [])
    if processes > 1:
        gc.enable()
        _serve_host(settings, config, overrides or [], add_scram or [], processes)
        return
    from cordwood.cluster.broker.process import CannotStart, run

    try:
        code = run(settings, users)
    except CannotStart as error:
        raise Failure(f"the broker cannot start: {error}") from error
    if code:
        raise typer.Exit(code)


def _serve_host(
    settings: "Settings", config: Path | None, overrides: list[str], add_scram: list[str], processes: int
) -> None:
    """Run the brokers of a host. Raises typer.Exit if one of them failed at its end."""
    from cordwood.cluster.cli.host import BrokerHost, own_overrides

    shared = [] if config is None else ["--config", str(config)]
    for name, texts in (("--set", overrides), ("--add-scram", add_scram)):
        shared += [word for text in texts for word in (name, text)]
    if code := BrokerHost(shared, own_overrides(settings, processes), settings.node_id).run():
        raise typer.Exit(code)


def ready(config: ConfigFile = None, overrides: Overrides = None) -> None:
    """Check whether the broker with these settings is ready.

    For health checks. Reads the same configuration as `cordwood serve` and asks that broker over HTTP (http.listen).
    Exits with 0 if the broker is in contact with the controller and serves requests.
    """
    from cordwood.cluster.config.listeners import http_address

    settings = settings_of(config, overrides)
    address = http_address(settings)
    if address is None or address[1] == 0:
        raise Failure(
            "http.listen has no port: set it to HOST:PORT, which the health check connects to.", ExitCode.USAGE
        )
    host, port = address
    typer.echo(answer(_WILDCARDS.get(host, host), port, tls_context(settings)))


def tls_context(settings: "Settings") -> "ssl.SSLContext | None":
    """Return the TLS context for the broker's own HTTP listener; None if that has no TLS. Raises Failure.

    The certificate is not checked: it may not have this machine's loopback address, and nothing secret is sent.
    """
    if settings.http_security_protocol != "SSL":
        return None
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if settings.http_ssl_client_auth == "required":
        _present_own_certificate(context, settings)
    return context


def _present_own_certificate(context: "ssl.SSLContext", settings: "Settings") -> None:
    from cordwood.cluster.config.listeners import HTTP

    location, kind, password = (
        str(settings.listener_value(HTTP, key) or "")
        for key in ("ssl.keystore.location", "ssl.keystore.type", "ssl.key.password")
    )
    if kind != "PEM" or not location:
        raise Failure(
            "http.ssl.client.auth is required: the health check needs ssl.keystore.location in PEM.", ExitCode.USAGE
        )
    try:
        context.load_cert_chain(location, password=password)
    except OSError as error:
        raise Failure(f"cannot use the certificate in {location}: {error}.") from None


def answer(host: str, port: int, tls: "ssl.SSLContext | None" = None) -> str:
    """Return the broker's answer if it is ready. Raises Failure with its reason if it is not."""
    from http.client import HTTPConnection, HTTPException, HTTPSConnection

    connection = (
        HTTPConnection(host, port, timeout=ANSWER_TIMEOUT_S)
        if tls is None
        else HTTPSConnection(host, port, timeout=ANSWER_TIMEOUT_S, context=tls)
    )
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
