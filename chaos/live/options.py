"""The options that the commands of this folder share, and the place that they work in."""

import contextlib
import signal
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated

import typer

Rounds = Annotated[int, typer.Option(min=1, help="How many times.")]
Seed = Annotated[int, typer.Option(help="Decides whom, where and when.")]
PerSecond = Annotated[int, typer.Option(min=1, help="Records that each producer sends.")]
Keep = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Leave the brokers' data and output in this new directory.")
]


def chosen(kinds: Iterable[str] | None, known: Iterable[str]) -> list[str]:
    """Those of the known kinds that were asked for; all where none was. Raises BadParameter."""
    wanted, names = set(kinds or known), list(known)
    if unknown := wanted - set(names):
        raise typer.BadParameter(
            f"there is no {', '.join(sorted(unknown))}, only {', '.join(names)}.", param_hint="--kinds"
        )
    return [name for name in names if name in wanted]


@contextlib.contextmanager
def workplace(keep: Path | None) -> Iterator[Path]:
    """A directory that is gone afterwards, unless somebody wants to keep it.

    Within it, SIGTERM ends this program as Ctrl-C does: what it started and mounted does not outlive it.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="cordwood-chaos-") as place:
            yield Path(place)
        return
    try:
        keep.mkdir(parents=True)
    except FileExistsError:
        raise typer.BadParameter(f"{keep} is there already.", param_hint="--keep") from None
    yield keep.resolve()
