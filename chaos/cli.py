"""The command line of `cordwood chaos`: the subcommands sim, replay, run and mutants."""

import typer

from cordwood.chaos.live.command import run
from cordwood.chaos.mutants.command import mutants
from cordwood.chaos.sim.command import replay, sim
from cordwood.cluster.cli.app import SentencesNotTracebacks

app = typer.Typer(
    cls=SentencesNotTracebacks,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Tests with simulated and real faults, and a check of all guarantees.",
)
app.command()(sim)
app.command()(replay)
app.command()(run)
app.command()(mutants)


@app.callback()
def chaos() -> None:
    """Tests with simulated and real faults, and a check of all guarantees."""


if __name__ == "__main__":
    app()
