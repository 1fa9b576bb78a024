"""The `cordwood` command."""


def main() -> None:
    """Run the command line. Exits with one of `cordwood.cluster.cli.exits.ExitCode`."""
    from cordwood.cluster.cli.app import app

    app(prog_name="cordwood")
