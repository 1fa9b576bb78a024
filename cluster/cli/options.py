"""Command-line options that several commands share."""

from typing import Annotated

import typer

DEFAULT_SERVERS = "127.0.0.1:9092"

BootstrapServers = Annotated[
    str,
    typer.Option(
        "--bootstrap-server",
        "-b",
        envvar="CORDWOOD_BOOTSTRAP_SERVERS",
        metavar="HOST:PORT,…",
        help="One or more bootstrap brokers.",
    ),
]

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
