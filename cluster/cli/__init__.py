"""The `cordwood` command."""

import gc


def main() -> None:
    """Run the command line. Exits with one of `cordwood.cluster.cli.exits.ExitCode`."""
    # Imports make no garbage: with Python's default, looking for it is a seventh of a broker's time until it is ready.
    gc.set_threshold(50_000, 5, 400)
    from cordwood.cluster.cli.app import app

    app(prog_name="cordwood")
