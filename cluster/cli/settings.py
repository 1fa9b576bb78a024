"""Options for a broker's own settings: configuration file and overrides."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cordwood.cluster.cli.exits import ExitCode, Failure

if TYPE_CHECKING:
    from cordwood.cluster.config.settings import Settings

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
