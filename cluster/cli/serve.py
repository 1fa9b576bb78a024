"""`cordwood serve`: one broker in the foreground."""

import typer

from cordwood.cluster.cli.exits import Failure
from cordwood.cluster.cli.settings import ConfigFile, Overrides, settings_of


def serve(config: ConfigFile = None, overrides: Overrides = None) -> None:
    """Run one broker until SIGTERM or Ctrl-C.

    Settings come from the file, then from CORDWOOD_* in the environment (CORDWOOD_LOG_DIRS is log.dirs), then from
    --set. With none of them the broker listens on 127.0.0.1:9092 and keeps its data in ./cordwood-data.
    """
    settings = settings_of(config, overrides)
    from cordwood.cluster.broker.process import CannotStart, run

    try:
        code = run(settings)
    except CannotStart as error:
        raise Failure(f"the broker cannot start: {error}") from error
    if code:
        raise typer.Exit(code)
