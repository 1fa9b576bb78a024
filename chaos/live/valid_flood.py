"""Flood of valid requests of the largest size on live brokers, which must not stall, grow, crash or lose a record.

    python -m cordwood.chaos.live.valid_flood --minutes 60 --seed 7
    python -m cordwood.chaos.live.valid_flood --shot 7/12/3
    python -m cordwood.chaos.live.valid_flood --only describe-configs-3000

The same seed sends the same requests. Exit 1 where a broker failed.
"""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TimeRemainingColumn

from cordwood.chaos.live.flood import attack
from cordwood.chaos.live.flood.attack import SentShots
from cordwood.chaos.live.flood.scenarios import SCENARIOS, SETTINGS
from cordwood.chaos.live.flood.stage import FloodCluster
from cordwood.chaos.live.flood.verdict import FloodVerdict
from cordwood.chaos.live.options import Keep, Seed, workplace

ALL = "all"
SECONDS_PER_MINUTE = 60.0

Attack = Callable[[FloodCluster], SentShots]


def flooded(
    place: Path, seed: int, seconds: float, processes: int = 2, brokers: int = 1
) -> tuple[SentShots, FloodVerdict]:
    """Flood a new cluster, with a progress bar."""
    with Progress(BarColumn(), TimeRemainingColumn(), console=Console(stderr=True)) as progress:
        bar = progress.add_task("flood", total=seconds)

        def send(stage: FloodCluster) -> SentShots:
            def show() -> None:
                progress.update(bar, completed=min(progress.get_time() - began_s, seconds))

            began_s = progress.get_time()
            return attack.flood(stage.aims(), seed, seconds, processes, stage.is_broker_gone, show)

        return _attacked(place, brokers, send)


def played(place: Path, name: str, brokers: int = 1) -> tuple[SentShots, FloodVerdict]:
    """Run a scenario on a new cluster."""
    return _attacked(place, brokers, lambda stage: attack.scenario(stage.aims(), name), SETTINGS.get(name))


def repeated(place: Path, name: str, brokers: int = 1) -> tuple[SentShots, FloodVerdict]:
    """Repeat one shot of a flood on a new cluster."""
    return _attacked(place, brokers, lambda stage: attack.shot(stage.aims(), name))


def _attacked(
    place: Path, brokers: int, send: Attack, settings: dict[str, str] | None = None
) -> tuple[SentShots, FloodVerdict]:
    with FloodCluster(place, brokers, settings) as stage:
        sent = send(stage)
        return sent, stage.verdict(sent)


def main(
    minutes: Annotated[float, typer.Option(min=0.1, help="Duration of the flood.")] = 60.0,
    seed: Seed = 1,
    only: Annotated[list[str] | None, typer.Option(help="In place of the flood a scenario; `all` for each.")] = None,
    shot: Annotated[list[str] | None, typer.Option(help="In place of the flood one request of it.")] = None,
    brokers: Annotated[int, typer.Option(min=1, help="Brokers of the cluster.")] = 1,
    processes: Annotated[int, typer.Option(min=1, help="Senders at once.")] = 2,
    keep: Keep = None,
) -> None:
    """Start brokers and a bystander, send the flood, scenarios or shots, and report the result."""
    console = Console(highlight=False, soft_wrap=True)
    has_failed = False

    def tell(name: str, sent: SentShots, verdict: FloodVerdict) -> bool:
        outcomes = Counter(shot.outcome.value for shot in sent.shots)
        counted = "".join(f"{count:,} requests {outcome}; " for outcome, count in outcomes.most_common())
        console.print(f"{name}: {counted}{verdict.figures}{sent.remark and f'; {sent.remark}'}", markup=False)
        for complaint in verdict.complaints:
            console.print(f"FAILED: {name}: {complaint}", style="red", markup=False)
        return bool(verdict.complaints)

    with workplace(keep) as place:
        for name in SCENARIOS if only == [ALL] else only or ():
            has_failed |= tell(name, *played(place / name, name, brokers))
        for name in shot or ():
            has_failed |= tell(f"shot {name}", *repeated(place / name.replace("/", "-"), name, brokers))
        if not only and not shot:
            has_failed = tell(f"seed {seed}", *flooded(place, seed, minutes * SECONDS_PER_MINUTE, processes, brokers))
    raise typer.Exit(1 if has_failed else 0)


if __name__ == "__main__":
    typer.run(main)
