"""SIGKILL of a broker under load, many times: `python -m cordwood.chaos.live.kill_rounds --rounds 50`."""

import random
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from cordwood.chaos.live.process import BrokerEnded, BrokerProcess
from cordwood.chaos.live.rounds import run

app = typer.Typer(pretty_exceptions_enable=False)


@app.command()
def main(
    rounds: Annotated[int, typer.Option(min=1, help="Number of times that the broker is killed.")] = 50,
    seed: Annotated[int, typer.Option(help="Decides when, and what is sent.")] = 1,
    partitions: Annotated[int, typer.Option(min=1)] = 4,
    producers: Annotated[int, typer.Option(min=1)] = 3,
) -> None:
    """Kill a broker with SIGKILL while idempotent producers write to it, and start it again.

    At the end every acknowledged record must be there, once, in order. Exits with 1 where it is not.
    """
    with tempfile.TemporaryDirectory(prefix="cordwood-kills-") as place:
        broker = BrokerProcess(Path(place) / "data")
        try:
            verdict = run(
                broker,
                broker.kill,
                rounds,
                random.Random(seed),
                partitions=partitions,
                producers=producers,
                told=lambda number: typer.echo(f"round {number} of {rounds}", err=True),
            )
        except BrokerEnded as ended:
            typer.echo(str(ended))
            raise typer.Exit(1) from None
        finally:
            broker.kill()
        verdict.tell()


if __name__ == "__main__":
    app()
