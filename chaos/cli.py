"""The command line of `cordwood chaos`: the subcommands sim, replay, run and mutants."""

from importlib import import_module
from typing import Any

import typer

from cordwood.cluster.cli.app import SentencesNotTracebacks

PLACES = {
    "sim": "cordwood.chaos.sim.command",
    "replay": "cordwood.chaos.sim.command",
    "run": "cordwood.chaos.live.command",
    "mutants": "cordwood.chaos.mutants.command",
}
"""The module of each subcommand, which has a function of that name."""


class ImportedOnUse(SentencesNotTracebacks):
    """The subcommands. Each is imported on use: together they are five times what one broker imports."""

    def list_commands(self, _ctx: Any) -> list[str]:
        return list(PLACES)

    def get_command(self, _ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in PLACES:
            return None
        alone = typer.Typer(add_completion=False)
        alone.command(cmd_name)(getattr(import_module(PLACES[cmd_name]), cmd_name))
        return typer.main.get_command(alone)


app = typer.Typer(
    cls=ImportedOnUse,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Tests with simulated and real faults, and a check of all guarantees.",
)


@app.callback()
def chaos() -> None:
    """Tests with simulated and real faults, and a check of all guarantees."""


if __name__ == "__main__":
    app()
