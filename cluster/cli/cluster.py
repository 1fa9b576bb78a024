"""`cordwood cluster`: checks of the cluster as a whole."""

from typing import Annotated

import typer

from cordwood.cluster.cli.client import target_of
from cordwood.cluster.cli.exits import ExitCode, Failure
from cordwood.cluster.cli.options import DEFAULT_SERVERS, INT32_MAX, AsJson, BootstrapServers, CommandConfig
from cordwood.cluster.cli.output import print_json

app = typer.Typer(no_args_is_help=True, help="Check the cluster as a whole.")


@app.callback()
def cluster() -> None:
    """Check the cluster as a whole."""


@app.command(name="can-stop")
def can_stop(
    brokers: Annotated[
        list[int] | None,
        typer.Argument(metavar="ID", min=0, max=INT32_MAX, help="The node.id of each broker to stop together."),
    ] = None,
    host: Annotated[
        str | None, typer.Option("--host", metavar="NAME", help="All brokers of this host, which is their broker.rack.")
    ] = None,
    as_json: AsJson = False,
    servers: BootstrapServers = DEFAULT_SERVERS,
    command_config: CommandConfig = None,
) -> None:
    """Check whether brokers may be stopped now without loss of availability or durability.

    Exits with 0 if they may be stopped together. Otherwise exits with 1 and prints the reasons, one per line.
    """
    if bool(brokers) == (host is not None):
        raise Failure("give either the IDs of brokers, or --host with the name of a host.", ExitCode.USAGE)
    from cordwood.cluster.cli.admin import cluster_admin
    from cordwood.cluster.cli.cluster_view import view_of
    from cordwood.cluster.cli.status_report import why_old
    from cordwood.cluster.operations.can_stop import brokers_on, reasons_against

    with cluster_admin(target_of(servers, command_config)) as admin:
        view = view_of(admin)
    if (reason := why_old(view)) is not None:
        raise Failure(reason)
    chosen = frozenset(brokers or ()) if host is None else brokers_on(view, host)
    if not chosen:
        raise Failure(f"no broker has the broker.rack {host}: see RACK in `cordwood status`.", ExitCode.USAGE)
    reasons = reasons_against(view, chosen)
    named = f"broker{'s' if len(chosen) > 1 else ''} {', '.join(map(str, sorted(chosen)))}"
    if as_json:
        about = {"broker": min(chosen)} if len(chosen) == 1 else {"brokers": sorted(chosen)}
        print_json({**about, "may_stop": not reasons, "reasons": reasons})
    elif reasons:
        typer.echo("\n".join(reasons))
    else:
        typer.echo(f"{named} may be stopped")
    if reasons:
        raise typer.Exit(ExitCode.FAILED)
