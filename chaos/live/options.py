"""Command-line options that the commands of this folder share, and their working directory."""

import contextlib
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

Rounds = Annotated[int, typer.Option(min=1, help="Number of rounds.")]
Seed = Annotated[int, typer.Option(help="The seed of the faults, their places and times.")]
Keep = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Keep the brokers' data and output in this new directory.")
]


@contextlib.contextmanager
def workplace(keep: Path | None) -> Iterator[Path]:
    """Yield a working directory, which is deleted afterwards unless `keep` names it.

    Within the block, SIGTERM ends this program as Ctrl-C does, so that the processes and mounts that it made end with
    it. A further SIGTERM does not interrupt that: `timeout` sends two.
    """
    signal.signal(signal.SIGTERM, _interrupt)
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="cordwood-chaos-") as place:
            yield Path(place)
        return
    try:
        keep.mkdir(parents=True)
    except FileExistsError:
        raise typer.BadParameter(f"{keep} is there already.", param_hint="--keep") from None
    yield keep.resolve()


def _interrupt(_number: int, _frame: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt
