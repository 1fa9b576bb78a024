"""`cordwood balance`: even out bytes, leaders and traffic among the brokers."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cordwood.cluster.cli.client import Target, target_of
from cordwood.cluster.cli.options import DEFAULT_SERVERS, AsJson, BootstrapServers, CommandConfig
from cordwood.cluster.cli.output import note, print_json, print_table, size_text

if TYPE_CHECKING:
    from kafka import KafkaAdminClient

    from cordwood.cluster.balance.plan import BalancePlan

MOVES_SHOWN = 20
MINUTE_S = 60
DEFAULT_THROTTLE = "50MB"
TRAFFIC_S = 2.0

Execute = Annotated[bool, typer.Option("--execute", help="Make the moves. Without it, nothing is changed.")]
Throttle = Annotated[
    str,
    typer.Option(
        "--throttle",
        metavar="RATE",
        help="Bytes per second that each broker sends and receives for the moves: 20MiB, 500KiB; or off.",
    ),
]
Journal = Annotated[
    Path | None,
    typer.Option(
        "--journal",
        metavar="FILE",
        help="Where the old replicas are written before the first move. The default is a new file in this directory.",
    ),
]
ShowAll = Annotated[bool, typer.Option("--all", "-a", help="Show every move.")]


def balance(
    execute: Execute = False,
    take_back: Annotated[
        Path | None,
        typer.Option("--take-back", metavar="FILE", help="Restore the replicas that a journal has, and no others."),
    ] = None,
    throttle: Throttle = DEFAULT_THROTTLE,
    journal: Journal = None,
    show_all: ShowAll = False,
    as_json: AsJson = False,
    servers: BootstrapServers = DEFAULT_SERVERS,
    command_config: CommandConfig = None,
) -> None:
    """Show the moves that make the cluster even; make them with --execute.

    Replicas of a partition stay in as many racks as possible, on different brokers, and on disks with room. Bytes on
    disk, leaders and traffic come within 10 % of even with few moves. Brokers that are down or cordoned get nothing.

    Ctrl-C cancels the moves that run and leaves those that are complete. --take-back undoes them all.
    """
    from cordwood.cluster.cli.admin import cluster_admin

    target = target_of(servers, command_config)
    with cluster_admin(target) as admin:
        if take_back is not None:
            _take_back(admin, target, take_back, throttle)
            return
        from cordwood.cluster.balance import planner
        from cordwood.cluster.cli.cluster_load import load_of
        from cordwood.storage.steps import at_once

        plan = at_once(planner.balance(load_of(admin, TRAFFIC_S)))
        show_plan(plan, throttle, show_all=show_all, as_json=as_json)
        if execute and not plan.is_empty:
            run_plan(admin, target, plan, throttle, journal or new_journal("balance"))
        elif plan.moves and not as_json:
            note("Nothing has changed. `cordwood balance --execute` makes these moves.")


def show_plan(plan: "BalancePlan", throttle: str, *, show_all: bool, as_json: bool) -> None:
    """Print moves, bytes, minutes and the verdict. Raises Failure."""
    from cordwood.cluster.cli.moves import parse_rate

    rate = parse_rate(throttle)
    if as_json:
        print_json(_plan_json(plan, rate))
        return
    shown = [move for move in plan.moves if move.adding]
    limit = len(shown) if show_all else MOVES_SHOWN
    if shown:
        headings = ["PARTITION", "FROM", "TO", "BYTES"]
        print_table(
            headings,
            [[move.name, list(move.before), list(move.after), size_text(move.copied_bytes)] for move in shown[:limit]],
        )
    if len(shown) > limit:
        typer.echo(f"… and {len(shown) - limit} more: --all shows every move.")
    if plan.moves:
        typer.echo("")
    print_table(
        ["BROKER", "BYTES", "AFTER", "REPLICAS", "AFTER", "LEADERS", "AFTER"],
        [
            [
                str(was.broker_id),
                size_text(was.size_bytes),
                size_text(then.size_bytes),
                was.replicas,
                then.replicas,
                was.leaders,
                then.leaders,
            ]
            for was, then in zip(plan.shares_before, plan.shares_after, strict=True)
        ],
    )
    for problem in plan.problems:
        note(f"{problem}.")
    if plan.moves:
        reordered = len(plan.moves) - len(shown)
        typer.echo(
            f"{len(shown)} moves copy {size_text(plan.copied_bytes)} in {_minutes_text(plan, rate)};"
            f" {reordered} change only the order of replicas."
        )
    typer.echo(f"Verdict: {plan.verdict()}.")


def run_plan(admin: "KafkaAdminClient", target: Target, plan: "BalancePlan", throttle: str, journal: Path) -> None:
    """Make the moves of a plan, and elect preferred leaders. Raises Failure, KafkaError, KeyboardInterrupt."""
    from cordwood.cluster.cli.moves import parse_rate
    from cordwood.cluster.cli.plan_execution import elect_preferred, execute, write_journal

    rate = parse_rate(throttle)
    began_s = time.monotonic()
    if plan.moves:
        write_journal(journal, plan.moves)
        note(f"To take the moves back: cordwood balance --take-back {journal}")
        execute(admin, target, plan.moves, rate)
    elect_preferred(admin, list(plan.led_by_others))
    passed_s = time.monotonic() - began_s
    typer.echo(
        f"{len(plan.moves)} moves are complete after {passed_s / MINUTE_S:.2f} minutes"
        f" (expected: {_expected_minutes(plan, rate)})."
    )


def new_journal(what: str) -> Path:
    """Return the default name of a journal, in the working directory."""
    return Path(f"cordwood-{what}-{time.strftime('%Y%m%d-%H%M%S')}.json")


def _take_back(admin: "KafkaAdminClient", target: Target, journal: Path, throttle: str) -> None:
    from cordwood.cluster.cli.moves import parse_rate
    from cordwood.cluster.cli.plan_execution import execute, read_journal, way_back

    moves, others = way_back(admin, read_journal(journal))
    if others:
        names = ", ".join(others[:5])
        note(f"{len(others)} partitions have other replicas than these moves gave them, and stay as they are: {names}")
    execute(admin, target, moves, parse_rate(throttle))
    typer.echo(f"{len(moves)} moves of {journal} are taken back.")


def _minutes_text(plan: "BalancePlan", rate: int | None) -> str:
    minutes = _expected_minutes(plan, rate)
    return "an unknown time without a throttle" if minutes is None else f"about {minutes} minutes"


def _expected_minutes(plan: "BalancePlan", rate: int | None) -> float | None:
    from cordwood.cluster.balance.execution import COPIES_PER_BROKER

    if not rate:
        return None
    return round(plan.expected_s(rate, COPIES_PER_BROKER) / MINUTE_S, 2)


def _plan_json(plan: "BalancePlan", rate: int | None) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "moves": [
            {
                "topic": move.topic,
                "partition": move.index,
                "before": list(move.before),
                "after": list(move.after),
                "bytes": move.copied_bytes,
            }
            for move in plan.moves
        ],
        "bytes": plan.copied_bytes,
        "expected_minutes": _expected_minutes(plan, rate),
        "brokers": [
            {"id": was.broker_id, "before": asdict(was), "after": asdict(then)}
            for was, then in zip(plan.shares_before, plan.shares_after, strict=True)
        ],
        "deviation_before": asdict(plan.before),
        "deviation_after": asdict(plan.after),
        "problems": list(plan.problems),
        "is_even": plan.is_even,
        "verdict": plan.verdict(),
    }
