"""`cordwood quorum`: the voters of the metadata quorum, shown, added, removed and replaced."""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cordwood.cluster.cli.client import Target, address_text, blocking_connection, parse_servers, target_of
from cordwood.cluster.cli.exits import Failure
from cordwood.cluster.cli.options import DEFAULT_SERVERS, INT32_MAX, AsJson, BootstrapServers, CommandConfig
from cordwood.cluster.cli.output import print_json, print_table

if TYPE_CHECKING:
    from kio.schema.describe_quorum.v2.response import PartitionData, ReplicaState

METADATA_TOPIC = "__cluster_metadata"
BROKER_CONFIGS = 4
ANSWER_S = 30.0
SPARE_S = 10.0
UNKNOWN = -1
ALL_INTERFACES = ("", "0.0.0.0", "::")

app = typer.Typer(no_args_is_help=True, help="Show, add, remove and replace the voters of the metadata quorum.")

Broker = Annotated[int, typer.Argument(metavar="ID", min=0, max=INT32_MAX, help="The id of a broker.")]
QuorumAddress = Annotated[
    str | None,
    typer.Option(
        "--address",
        metavar="HOST:PORT",
        help="Where the other voters reach the broker. Default: the address of its controller listener.",
    ),
]
Patience = Annotated[
    float, typer.Option("--timeout", metavar="SECONDS", help="The time that the broker has to catch up.")
]


@app.command()
def status(
    as_json: AsJson = False, servers: BootstrapServers = DEFAULT_SERVERS, command_config: CommandConfig = None
) -> None:
    """Show the leader, the voters, and the brokers that follow the metadata without a vote."""
    quorum = _described(_leader_of(target_of(servers, command_config)))
    rows = [
        *(_row(replica, quorum, "voter") for replica in quorum.current_voters),
        *(_row(replica, quorum, "observer") for replica in quorum.observers),
    ]
    if as_json:
        leader = None if quorum.leader_id == UNKNOWN else quorum.leader_id
        print_json({"leader": leader, "term": quorum.leader_epoch, "committed": quorum.high_watermark, "members": rows})
        return
    typer.echo(f"Term {quorum.leader_epoch}, {quorum.high_watermark} entries committed")
    print_table(["BROKER", "ROLE", "DIRECTORY", "LOG END", "LAG"], [list(row.values()) for row in rows])


@app.command()
def add(
    broker: Broker,
    address: QuorumAddress = None,
    timeout_s: Patience = 30.0,
    servers: BootstrapServers = DEFAULT_SERVERS,
    command_config: CommandConfig = None,
) -> None:
    """Make a running broker a voter, once it has caught up with the metadata. It needs a controller listener."""
    _add(target_of(servers, command_config), broker, address, timeout_s)


@app.command()
def remove(broker: Broker, servers: BootstrapServers = DEFAULT_SERVERS, command_config: CommandConfig = None) -> None:
    """Take the vote from a broker, whether it runs or not. A removed leader hands its leadership over."""
    _remove(target_of(servers, command_config), broker)


@app.command(name="replace")
def replace_voter(
    old: Annotated[
        int, typer.Argument(metavar="OLD", min=0, max=INT32_MAX, help="The voter to remove, dead or alive.")
    ],
    new: Annotated[int, typer.Argument(metavar="NEW", min=0, max=INT32_MAX, help="The running broker to add.")],
    address: QuorumAddress = None,
    timeout_s: Patience = 30.0,
    servers: BootstrapServers = DEFAULT_SERVERS,
    command_config: CommandConfig = None,
) -> None:
    """Add a voter, and then remove another. If NEW cannot become a voter, nothing has changed."""
    target = target_of(servers, command_config)
    _voter(_described(_leader_of(target)), old)
    _add(target, new, address, timeout_s)
    _remove(target, old)


def _add(target: Target, broker: int, address: str | None, timeout_s: float) -> None:
    from datetime import timedelta

    from kio.schema.add_raft_voter.v1.request import AddRaftVoterRequest, Listener

    quorum = _described(_leader_of(target))
    found = parse_servers(address)[0] if address else _controller_address(target, broker)
    member = next((one for one in (*quorum.current_voters, *quorum.observers) if one.replica_id == broker), None)
    if member is None or member.replica_directory_id is None:
        raise Failure(f"broker {broker} does not follow the metadata quorum: start it first.")
    host, port = found
    request = AddRaftVoterRequest(
        cluster_id=None,
        timeout=timedelta(seconds=timeout_s),
        voter_id=broker,
        voter_directory_id=member.replica_directory_id,
        listeners=(Listener(name="CONTROLLER", host=host, port=port),),
    )
    with blocking_connection(target, timeout_s + SPARE_S) as connection:
        _check(connection.ask(request))
    typer.echo(f"Broker {broker} is a voter, at {address_text(host, port)}")


def _remove(target: Target, broker: int) -> None:
    from kio.schema.remove_raft_voter.v0 import RemoveRaftVoterRequest

    directory_id = _voter(_described(_leader_of(target)), broker).replica_directory_id
    request = RemoveRaftVoterRequest(cluster_id=None, voter_id=broker, voter_directory_id=directory_id)
    with blocking_connection(target, ANSWER_S) as connection:
        _check(connection.ask(request))
    typer.echo(f"Broker {broker} is no voter any more")


def _voter(quorum: "PartitionData", broker: int) -> "ReplicaState":
    voter = next((one for one in quorum.current_voters if one.replica_id == broker), None)
    if voter is None:
        raise Failure(f"broker {broker} is no voter.")
    return voter


def _leader_of(target: Target) -> Target:
    """Return the leader of the quorum: only the leader has the log ends of the others. Without one, return `target`."""
    leader = _described(target).leader_id
    if leader == UNKNOWN:
        return target
    return _broker_of(target, leader) or target


def _described(target: Target) -> "PartitionData":
    from kio.schema.describe_quorum.v2.request import DescribeQuorumRequest, PartitionData, TopicData

    asked = TopicData(topic_name=METADATA_TOPIC, partitions=(PartitionData(partition_index=0),))
    with blocking_connection(target, ANSWER_S) as connection:
        response = connection.ask(DescribeQuorumRequest(topics=(asked,)))
    _check(response)
    described: PartitionData = response.topics[0].partitions[0]
    return described


def _broker_of(target: Target, broker: int) -> Target | None:
    """Return one broker as the target of requests; None if it is not in service."""
    from kio.schema.describe_cluster.v1 import DescribeClusterRequest

    with blocking_connection(target, ANSWER_S) as connection:
        cluster = connection.ask(DescribeClusterRequest(include_cluster_authorized_operations=False, endpoint_type=1))
    _check(cluster)
    found = next((one for one in cluster.brokers if one.broker_id == broker), None)
    return None if found is None else replace(target, servers=address_text(found.host, found.port))


def _row(replica: "ReplicaState", quorum: "PartitionData", role: str) -> dict[str, Any]:
    log_end = None if replica.log_end_offset == UNKNOWN else replica.log_end_offset
    return {
        "broker": replica.replica_id,
        "role": "leader" if replica.replica_id == quorum.leader_id else role,
        "directory": None if replica.replica_directory_id is None else str(replica.replica_directory_id),
        "log_end": log_end,
        "lag": None if log_end is None else max(0, quorum.high_watermark - log_end),
    }


def _controller_address(target: Target, broker: int) -> tuple[str, int]:
    """Return host and port of a broker's controller listener, by its own configuration."""
    own = _broker_of(target, broker)
    if own is None:
        raise Failure(f"broker {broker} is not in service: start it first.")
    [(own_host, _)] = parse_servers(own.servers)
    configs = _configs(own, broker)
    names = {name.strip().upper() for name in configs["controller.listener.names"].split(",")}
    for listener in configs["listeners"].split(","):
        name, _, address = listener.strip().partition("://")
        host, _, port = address.rpartition(":")
        if name.upper() in names and port.isdecimal():
            return own_host if host.strip("[]") in ALL_INTERFACES else host.strip("[]"), int(port)
    for voter in configs["controller.quorum.voters"].split(","):
        voter_id, _, address = voter.strip().partition("@")
        if voter_id == str(broker):
            return parse_servers(address)[0]
    raise Failure(
        f"broker {broker} has no controller listener: add one such as CONTROLLER://{own_host}:9093 to its listeners"
        " and restart it.",
    )


def _configs(own: Target, broker: int) -> dict[str, str]:
    from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource

    names = ("listeners", "controller.listener.names", "controller.quorum.voters")
    wanted = DescribeConfigsResource(resource_type=BROKER_CONFIGS, resource_name=str(broker), configuration_keys=names)
    request = DescribeConfigsRequest(resources=(wanted,), include_synonyms=False, include_documentation=False)
    with blocking_connection(own, ANSWER_S) as connection:
        response = connection.ask(request)
    (result,) = response.results
    _check(result)
    return dict.fromkeys(names, "") | {row.name: row.value or "" for row in result.configs}


def _check(response: Any) -> None:
    """Raise Failure for an error code, with the broker's sentence if it has one."""
    from kio.schema.errors import ErrorCode

    if response.error_code is not ErrorCode.none:
        reason = response.error_message or response.error_code.name.upper()
        raise Failure(f"the broker refused: {reason.rstrip('.')}.")
