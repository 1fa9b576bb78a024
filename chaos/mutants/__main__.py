"""`python -m cordwood.chaos.mutants`, for who has no `cordwood` command."""

import typer

from cordwood.chaos.mutants.command import mutants

typer.run(mutants)
