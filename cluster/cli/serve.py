"""`cordwood serve`: one broker in the foreground."""

import os
from pathlib import Path
from typing import Annotated

import typer

from cordwood.cluster.cli.exits import ExitCode, Failure


def serve(
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            "-c",
            metavar="FILE",
            envvar="CORDWOOD_CONFIG",
            show_envvar=True,
            help="A TOML file with Kafka's own key names.",
        ),
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", "-s", metavar="KEY=VALUE", help="Overrides file and environment; may be repeated."),
    ] = None,
) -> None:
    """Run one broker until SIGTERM or Ctrl-C.

    Settings come from the file, then from CORDWOOD_* in the environment (CORDWOOD_LOG_DIRS is log.dirs), then from
    --set. With none of them the broker listens on 127.0.0.1:9092 and keeps its data in ./cordwood-data.
    """
    from cordwood.cluster.config_sources import ConfigMistakes, load

    toml = None if config is None else _text_of(config)
    try:
        settings = load(toml, os.environ, overrides or [])
    except ConfigMistakes as mistakes:
        raise Failure("\ncordwood: ".join(mistakes.sentences), ExitCode.USAGE) from None
    from cordwood.cluster.broker import CannotStart, run

    try:
        code = run(settings)
    except CannotStart as error:
        raise Failure(f"the broker cannot start: {error}") from error
    if code:
        raise typer.Exit(code)


def _text_of(config: Path) -> str:
    """A configuration file's text. Raises Failure with exit code 2."""
    try:
        return config.read_text(encoding="utf-8")
    except OSError as error:
        raise Failure(f"cannot read the configuration {config}: {error.strerror}.", ExitCode.USAGE) from None
    except UnicodeDecodeError:
        raise Failure(f"the configuration {config} is no text file in UTF-8.", ExitCode.USAGE) from None
