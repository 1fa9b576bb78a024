"""Command-line options that several commands share."""

from pathlib import Path
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

CommandConfig = Annotated[
    Path | None,
    typer.Option(
        "--command-config",
        envvar="CORDWOOD_COMMAND_CONFIG",
        metavar="FILE",
        help="A file of client properties, such as security.protocol and sasl.username, in librdkafka's or Kafka's"
        " keys. bootstrap.servers in it is used unless --bootstrap-server is given.",
    ),
]
