"""`python -m cordwood.chaos.mutants`, for an environment without the `cordwood` command."""

import typer

from cordwood.chaos.mutants.command import mutants

typer.run(mutants)
