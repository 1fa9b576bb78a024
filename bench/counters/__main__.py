"""`python -m cordwood.bench.counters`: calls, memory and system calls of requests, beside their budget."""

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from cordwood.bench.counters import budget
from cordwood.bench.counters.scenarios import SCENARIOS, count


def main(
    write: Annotated[bool, typer.Option(help="Make the current counts the budget for this Python version.")] = False,
    scenario: Annotated[str, typer.Option(help="Run only the scenarios whose name contains this.")] = "",
) -> None:
    """Count every scenario. Exits with 1 where one exceeds its budget, unless --write is given."""
    console = Console()
    known = budget.load() if budget.PATH.exists() else {}
    written = known
    complaints: list[str] = []
    for each in SCENARIOS:
        if scenario not in each.name:
            continue
        counts = count(each)
        console.print(_table(each.name, counts, known))
        complaints += [change.complaint for change in budget.exceeded(each.name, counts, known)]
        for change in budget.fallen(each.name, counts, known):
            console.print(f"{change}: the budget can be tightened.", highlight=False)
        written = budget.with_counts(written, each.name, counts)
    if write:
        names = [each.name for each in SCENARIOS]
        budget.save({name: counters for name, counters in written.items() if name in names})
        console.print(f"Written for Python {budget.PYTHON}. A commit that raises a figure says why.")
        return
    if not budget.is_measured(known):
        console.print(f"The budget has no figures for Python {budget.PYTHON}: calls and memory are not held to any.")
    for complaint in complaints:
        console.print(complaint, highlight=False)
    if complaints:
        raise typer.Exit(1)


def _table(name: str, counts: budget.Counts, known: budget.Budget) -> Table:
    table = Table(title=f"{name}, each")
    for column in ("", "budget", "now"):
        table.add_column(column, justify="right" if column else "left")
    for counter in sorted({*counts, *known.get(name, {})}):
        allowed = known.get(name, {}).get(counter)
        allowed = allowed.get(budget.PYTHON) if isinstance(allowed, dict) else allowed
        shown = "-" if allowed is None else f"{allowed:,.2f}"
        table.add_row(counter, shown, f"{counts.get(counter, 0.0):,.2f}")
    return table


if __name__ == "__main__":
    typer.run(main)
