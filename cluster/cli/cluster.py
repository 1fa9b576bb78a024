"""`cordwood cluster`: checks of the cluster as a whole."""

from typing import Annotated

import typer

from cordwood.cluster.cli.client import target_of
from cordwood.cluster.cli.exits import ExitCode, Failure
from cordwood.cluster.cli.options import DEFAULT_SERVERS, AsJson, BootstrapServers, CommandConfig
from cordwood.cluster.cli.output import print_json

app = typer.Typer(no_args_is_help=True, help="Check the cluster as a whole.")


@app.callback()
def cluster() -> None:
    """Check the cluster as a whole."""


@app.command(name="can-stop")
def can_stop(
    broker: Annotated[int, typer.Argument(metavar="ID", min=0, help="The broker's node.id.")],
    as_json: AsJson = False,
    servers: BootstrapServers = DEFAULT_SERVERS,
    command_config: CommandConfig = None,
) -> None:
    """Check whether a broker may be stopped now without loss of availability or durability.

    Exits with 0 if it may be stopped. Otherwise exits with 1 and prints the reasons, one per line.
    """
    from cordwood.cluster.cli.admin import cluster_admin
    from cordwood.cluster.cli.cluster_view import view_of
    from cordwood.cluster.cli.status_report import why_old
    from cordwood.cluster.operations.can_stop import reasons_against

    with cluster_admin(target_of(servers, command_config)) as admin:
        view = view_of(admin)
    if (reason := why_old(view)) is not None:
        raise Failure(reason)
    reasons = reasons_against(view, broker)
    if as_json:
        print_json({"broker": broker, "may_stop": not reasons, "reasons": reasons})
    elif reasons:
        typer.echo("\n".join(reasons))
    else:
        typer.echo(f"broker {broker} may be stopped")
    if reasons:
        raise typer.Exit(ExitCode.FAILED)
