"""`cordwood broker`: list, cordon, drain and remove brokers."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from cordwood.cluster.cli.balance import DEFAULT_THROTTLE, Execute, Journal, ShowAll, Throttle
from cordwood.cluster.cli.client import (
    Target,
    admin_client,
    answer,
    blocking_connection,
    running_brokers,
    target_of,
)
from cordwood.cluster.cli.exits import Failure
from cordwood.cluster.cli.options import DEFAULT_SERVERS, INT32_MAX, AsJson, BootstrapServers, CommandConfig
from cordwood.cluster.cli.output import note, print_rows, size_text

if TYPE_CHECKING:
    from cordwood.cluster.balance.load import ClusterLoad
    from cordwood.cluster.operations.view import ClusterView

app = typer.Typer(no_args_is_help=True, help="List, cordon, drain and remove brokers.")

BrokerIds = Annotated[list[int], typer.Argument(metavar="ID", min=0, max=INT32_MAX, help="The broker's node.id.")]
CORDONED, ALL_DIRECTORIES = "cordoned.log.dirs", "*"


@app.callback()
def broker() -> None:
    """List, cordon, drain and remove brokers."""


@app.command(name="list")
def list_brokers(
    as_json: AsJson = False, servers: BootstrapServers = DEFAULT_SERVERS, command_config: CommandConfig = None
) -> None:
    """List the registered brokers with their replicas and disks.

    FREE is the free space of their log directories together.
    """
    from cordwood.cluster.cli.admin import cluster_admin
    from cordwood.cluster.cli.cluster_load import cordons_of, is_cordoned
    from cordwood.cluster.cli.cluster_view import view_of

    with cluster_admin(target_of(servers, command_config)) as admin:
        view = view_of(admin)
        cordons = cordons_of(admin, view)
    rows = [
        {
            "id": each.broker_id,
            "address": each.address,
            "rack": each.rack,
            "state": ("cordoned" if is_cordoned(each, cordons) else "alive") if each.is_alive else "down",
            **_held(view, each.broker_id, as_json=as_json),
        }
        for each in view.brokers
    ]
    headings = ["ID", "ADDRESS", "RACK", "STATE", "LEADERS", "REPLICAS", "BYTES", "FREE"]
    print_rows(rows, headings, as_json, "There is no broker.")


@app.command()
def cordon(ids: BrokerIds, servers: BootstrapServers = DEFAULT_SERVERS, command_config: CommandConfig = None) -> None:
    """Place no new replicas on these brokers. The replicas that they have stay."""
    _set_cordons(target_of(servers, command_config), ids, is_cordoned=True)
    for each in ids:
        typer.echo(f"broker {each} is cordoned: it gets no new replicas")


@app.command()
def uncordon(ids: BrokerIds, servers: BootstrapServers = DEFAULT_SERVERS, command_config: CommandConfig = None) -> None:
    """Place new replicas on these brokers again."""
    _set_cordons(target_of(servers, command_config), ids, is_cordoned=False)
    for each in ids:
        typer.echo(f"broker {each} may get new replicas")


@app.command()
def drain(
    ids: BrokerIds,
    execute: Execute = False,
    throttle: Throttle = DEFAULT_THROTTLE,
    journal: Journal = None,
    show_all: ShowAll = False,
    as_json: AsJson = False,
    servers: BootstrapServers = DEFAULT_SERVERS,
    command_config: CommandConfig = None,
) -> None:
    """Show the moves that leave these brokers empty; make them with --execute.

    With --execute the brokers are cordoned first and stay so. A broker that has no replicas may be stopped and removed.
    """
    from cordwood.cluster.balance import planner
    from cordwood.cluster.cli.admin import cluster_admin
    from cordwood.cluster.cli.balance import new_journal, run_plan, show_plan
    from cordwood.cluster.cli.cluster_load import load_of
    from cordwood.storage.steps import at_once

    target = target_of(servers, command_config)
    with cluster_admin(target) as admin:
        load = load_of(admin)
        _require_known(load, ids)
        alive = [each for each in ids if (found := load.broker(each)) is not None and found.is_alive]
        if execute and alive:
            _set_cordons(target, alive, is_cordoned=True)
            load = load_of(admin)
        plan = at_once(planner.drain(load, ids))
        show_plan(plan, throttle, show_all=show_all, as_json=as_json)
        if not execute:
            if plan.moves and not as_json:
                words = " ".join(map(str, ids))
                note(f"Nothing has changed. `cordwood broker drain {words} --execute` makes these moves.")
            return
        if not plan.is_empty:
            run_plan(admin, target, plan, throttle, journal or new_journal("drain"))
        left = _replicas_left(load_of(admin), ids)
    if left:
        names = ", ".join(f"broker {each}: {count}" for each, count in left.items())
        raise Failure(f"replicas are left ({names}). Run the command again once the cause above is removed.")
    words = " ".join(map(str, ids))
    note(f"No replicas are left. Stop what is drained, then: cordwood broker remove {words}")


@app.command()
def remove(ids: BrokerIds, servers: BootstrapServers = DEFAULT_SERVERS, command_config: CommandConfig = None) -> None:
    """Remove the registration of brokers that are stopped and have no replicas."""
    from kio.schema.errors import ErrorCode
    from kio.schema.types import BrokerId
    from kio.schema.unregister_broker.v0.request import UnregisterBrokerRequest

    with blocking_connection(target_of(servers, command_config)) as connection:
        for each in ids:
            response = connection.ask(UnregisterBrokerRequest(broker_id=BrokerId(each)))
            if response.error_code is not ErrorCode.none:
                reason = response.error_message or response.error_code.name
                raise Failure(f"broker {each}: {reason.rstrip('.')}.")
            typer.echo(f"broker {each} is removed")


def _held(view: "ClusterView", broker_id: int, *, as_json: bool) -> dict[str, Any]:
    replicas = [replica for part in view.partitions for replica in part.replicas if replica.broker_id == broker_id]
    found = view.broker(broker_id)
    directories = None if found is None else found.log_directories
    free = None if directories is None else sum(each.usable_bytes or 0 for each in directories)
    held = None if directories is None else sum(replica.size_bytes or 0 for replica in replicas)
    return {
        "leaders": sum(partition.leader == broker_id for partition in view.partitions),
        "replicas": len(replicas),
        "bytes": held if as_json or held is None else size_text(held),
        "free": free if as_json or free is None else size_text(free),
    }


def _require_known(load: "ClusterLoad", ids: list[int]) -> None:
    for each in ids:
        if load.broker(each) is None:
            known = ", ".join(str(other.broker_id) for other in load.brokers)
            raise Failure(f"there is no broker {each}: the cluster has {known}.")


def _replicas_left(load: "ClusterLoad", ids: list[int]) -> dict[int, int]:
    counts = {each: sum(each in partition.replicas for partition in load.partitions) for each in ids}
    return {each: count for each, count in counts.items() if count}


def _set_cordons(target: Target, ids: list[int], *, is_cordoned: bool) -> None:
    with admin_client(target) as admin:
        from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

        operation = AlterConfigOpType.SET if is_cordoned else AlterConfigOpType.DELETE
        value = ALL_DIRECTORIES if is_cordoned else None
        entries = [ConfigEntry(CORDONED, value, incremental_operation=operation)]
        # Only the broker itself takes its configs.
        running = running_brokers(admin)
        for each in ids:
            if each not in running:
                known = ", ".join(map(str, running))
                raise Failure(f"broker {each} does not run, only {known}: see `cordwood broker list`.")
        for each in ids:
            resource = ConfigResource(ResourceType.BROKER, str(each), incremental_configs=entries)
            answer(admin.incremental_alter_configs([resource])[resource])
