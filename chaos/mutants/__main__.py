"""`python -m cordwood.chaos.mutants`, for an environment without the `cordwood` command."""

from cordwood.chaos.mutants.command import mutants
from cordwood.chaos.program import run_program

run_program(mutants)
