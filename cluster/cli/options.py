"""Command-line options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

from cordwood.cluster.cli.exits import ExitCode, Failure

DEFAULT_SERVERS = "127.0.0.1:9092"

INT16_MAX, INT32_MAX, INT64_MAX = (1 << 15) - 1, (1 << 31) - 1, (1 << 63) - 1
"""The largest numbers of Kafka's messages. Every number on the command line has a limit: beyond it, a client raises."""
PARTITIONS_MAX, REPLICAS_MAX = 100_000, 10_000
"""librdkafka's limits for the partitions and replicas of a topic."""

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

Unset = Annotated[
    list[str] | None,
    typer.Option("--unset", metavar="KEY", help="Reset this config to its default; may be repeated."),
]


def configs_of(pairs: list[str] | None, example: str) -> dict[str, str]:
    """Parse the values of --config, KEY=VALUE each. Raises Failure, which shows the example, with exit code 2."""
    for pair in pairs or ():
        if "=" not in pair or pair.startswith("="):
            raise Failure(f"--config {pair!r}: give key=value, such as {example}.", ExitCode.USAGE)
    return dict(pair.split("=", 1) for pair in pairs or ())
