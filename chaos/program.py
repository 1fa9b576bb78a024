"""Programs that are modules, such as `python -m cordwood.bench.archive`: a failure is one line, without a traceback."""

import sys
from collections.abc import Callable

import typer

from cordwood.cluster.cli.exits import Failure


def run_program(program: typer.Typer | Callable[..., object]) -> None:
    """Run commands, or a function as the only command, with this process's arguments. Ends the process."""
    try:
        program() if isinstance(program, typer.Typer) else typer.run(program)
    except Failure as failure:
        typer.echo(failure.sentence, err=True)
        sys.exit(failure.exit_code)
