"""`cordwood status`: brokers, controller, disks, and partitions in need of attention."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from cordwood.cluster.cli.client import Target, parse_servers, target_of
from cordwood.cluster.cli.exits import Failure
from cordwood.cluster.cli.options import DEFAULT_SERVERS, AsJson, BootstrapServers, CommandConfig
from cordwood.cluster.cli.output import console, note, print_json, print_json_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import RenderableType

    from cordwood.cluster.operations.view import ClusterView

WATCH_INTERVAL_S = 2.0


def status(
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Refresh every two seconds, until Ctrl-C.")] = False,
    all_partitions: Annotated[
        bool,
        typer.Option("--all", "-a", help="Show every partition, not only those that are under-replicated or offline."),
    ] = False,
    as_json: AsJson = False,
    servers: BootstrapServers = DEFAULT_SERVERS,
    command_config: CommandConfig = None,
) -> None:
    """Show brokers, controller, disks, and the partitions that are under-replicated or offline.

    LAG is the number of metadata records that a broker has not applied. RECORDS BEHIND is the number of records that a
    follower lacks. FREE is the free space of the fullest log directory. A dash stands for an unknown value.

    If no majority of the voters answers, the command shows the last known state with a warning, and exits with 1.
    """
    if watch:
        _watch(target_of(servers, command_config), all_partitions, as_json)
        return
    from cordwood.cluster.cli import status_report

    view = _look(target_of(servers, command_config))
    if as_json:
        print_json(status_report.as_json(view))
    else:
        console().print(status_report.as_tables(view, all_partitions=all_partitions))
    if (reason := status_report.why_old(view)) is not None:
        raise Failure(reason)


def _look(target: Target) -> "ClusterView":
    from cordwood.cluster.cli.admin import cluster_admin
    from cordwood.cluster.cli.cluster_view import view_of

    with cluster_admin(target) as admin:
        return view_of(admin)


def _watch(target: Target, all_partitions: bool, as_json: bool) -> None:
    from cordwood.cluster.cli import status_report

    if as_json:
        for seen in _looks(target):
            if isinstance(seen, Failure):
                note(f"cordwood: {seen.sentence}")
            else:
                print_json_line(status_report.as_json(seen))
        return
    with _repainted() as show:
        for seen in _looks(target):
            show(
                seen.sentence
                if isinstance(seen, Failure)
                else status_report.as_tables(seen, all_partitions=all_partitions)
            )


def _looks(target: Target) -> "Iterator[ClusterView | Failure]":
    """Yield the cluster's state every two seconds, or the failure to get it, which may be temporary."""
    parse_servers(target.servers)
    while True:
        try:
            seen: ClusterView | Failure = _look(target)
        except Failure as failure:
            seen = failure
        yield seen
        time.sleep(WATCH_INTERVAL_S)


@contextmanager
def _repainted() -> "Iterator[Callable[[RenderableType], None]]":
    """Yield a function that shows a picture in place of the last one, or below it without a terminal."""
    screen = console()
    if not screen.is_terminal:
        yield screen.print
        return
    from rich.live import Live

    with Live(console=screen, screen=True, auto_refresh=False) as live:
        yield lambda picture: live.update(picture, refresh=True)
