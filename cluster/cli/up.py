"""`cordwood up` and `cordwood down`: a cluster of several brokers on this machine."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cordwood.cluster.cli.exits import ExitCode, Failure, sigterm_as_ctrl_c
from cordwood.cluster.cli.local.default_cluster import DEFAULT_DIRECTORY
from cordwood.cluster.cli.options import INT16_MAX, INT32_MAX
from cordwood.cluster.cli.output import note

if TYPE_CHECKING:
    from cordwood.cluster.cli.local.directory import ClusterDirectory, LocalBroker
    from cordwood.cluster.cli.local.security import LocalSecurity

DataDir = Annotated[
    Path, typer.Option("--data-dir", "-d", metavar="DIR", help="The directory for the cluster's files and data.")
]


Brokers = Annotated[
    int | None,
    typer.Option(
        "--brokers",
        "-n",
        min=1,
        max=INT16_MAX,
        help="Number of brokers; the default is 3 for a new cluster, or the number of an existing one.",
    ),
]
Port = Annotated[
    int | None,
    typer.Option(
        "--port",
        "-p",
        min=1,
        max=65535,
        help="Kafka port of broker 1; the next brokers use the next ports. The default is 9092.",
    ),
]
HttpPort = Annotated[
    int | None,
    typer.Option(
        "--http-port",
        min=1,
        max=65535,
        help=(
            "HTTP port (API, health and metrics) of broker 1; the next brokers use the next ports. The default is 8080."
        ),
    ),
]
Voters = Annotated[
    int | None,
    typer.Option(
        "--voters",
        max=5,
        help="Number of voters of the metadata quorum: 1, 3 or 5. The default is 3 if there are as many brokers.",
    ),
]
BrokersOnHost = Annotated[
    int | None,
    typer.Option(
        "--processes",
        min=1,
        max=64,
        help="Brokers on each host, for a host with many cores: --brokers then counts hosts, whose names are the"
        " brokers' racks. No two replicas of a partition are on one host.",
    ),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", "-s", metavar="KEY=VALUE", help="A setting for all brokers; may be repeated."),
]
Secure = Annotated[
    bool,
    typer.Option(
        "--secure",
        help=(
            "Create a closed cluster: TLS everywhere, users with passwords, and rights by ACLs. Clients connect"
            " with DIR/client.properties."
        ),
    ),
]
Detach = Annotated[bool, typer.Option("--detach", help="Return when the cluster is ready, and leave it running.")]


def up(
    brokers: Brokers = None,
    data_dir: DataDir = DEFAULT_DIRECTORY,
    port: Port = None,
    http_port: HttpPort = None,
    voters: Voters = None,
    brokers_on_host: BrokersOnHost = None,
    overrides: Overrides = None,
    secure: Secure = False,
    detach: Detach = False,
) -> None:
    """Start a cluster on this machine, wait until it is ready, and print its bootstrap servers.

    Each broker is a separate process. DIR/broker-N has its configuration (server.toml), its log (broker.log) and its
    data. DIR/cluster.json lists the brokers with their ports.

    With --secure, DIR/security has a CA and the brokers' certificates, and DIR/client.properties the settings of the
    administrator's clients: give it to other commands as --command-config. Keep both secret.

    If the cluster exists, the command starts the brokers that do not run, on the same ports. --brokers may add brokers.

    Without --detach the command runs until Ctrl-C or SIGTERM, and then stops the brokers that it started.
    """
    from cordwood.cluster.cli.local import plan, processes
    from cordwood.cluster.cli.local.security import LocalSecurity

    directory = _directory_in(data_dir)
    options = plan.UpOptions(brokers, port, http_port, voters, tuple(overrides or ()), secure, brokers_on_host)
    members = plan.members_wanted(directory, options)
    pids = directory.pids()
    idle = [member for member in members if not processes.is_running(member, pids.get(member.broker_id))]
    processes.require_free_ports(idle)
    security = LocalSecurity(directory)
    security.provide(members)
    for member in members:
        if overrides or not member.config.exists():
            directory.write(member)
    if overrides and len(idle) < len(members):
        note("Brokers that are already running read --set at their next start.")
    ours: dict[int, LocalBroker] = {}
    with sigterm_as_ctrl_c():
        try:
            _start(directory, members, idle, ours, security)
            typer.echo(",".join(member.kafka for member in members))
            if security.client_file.exists():
                _introduce(security.client_file, members[0])
            if not detach:
                _follow(ours, data_dir)
        except (Failure, KeyboardInterrupt) as end:
            _stop(ours)
            if detach or isinstance(end, Failure):
                raise


def down(
    data_dir: DataDir = DEFAULT_DIRECTORY,
    only: Annotated[
        list[int] | None,
        typer.Option(
            "--broker",
            metavar="ID",
            min=0,
            max=INT32_MAX,
            help="Stop this broker only; may be repeated. The default is all.",
        ),
    ] = None,
) -> None:
    """Stop the brokers of a cluster that `cordwood up` started. Removes no file.

    A broker that does not stop in 30 s is killed. Its acknowledged records are on disk.
    """
    from cordwood.cluster.cli.local import processes

    directory = _directory_in(data_dir)
    members, pids = directory.members(), directory.pids()
    if not members:
        raise Failure(f"there is no cluster in {data_dir}: give its directory with --data-dir.", ExitCode.USAGE)
    running = {
        member.broker_id: (member, pids[member.broker_id])
        for member in members
        if processes.is_running(member, pids.get(member.broker_id)) and member.broker_id in (only or [member.broker_id])
    }
    if not running:
        typer.echo(f"No {'such ' if only else ''}broker of {data_dir} is running.")
    for sentence in processes.stop(running):
        typer.echo(sentence)


def _directory_in(data_dir: Path) -> "ClusterDirectory":
    from cordwood.cluster.cli.local.directory import ClusterDirectory

    return ClusterDirectory(data_dir.resolve())


def _start(
    directory: "ClusterDirectory",
    members: "list[LocalBroker]",
    idle: "list[LocalBroker]",
    ours: "dict[int, LocalBroker]",
    security: "LocalSecurity",
) -> None:
    """Start the brokers that do not run, and wait until all can be used. Add those started to `ours`, by process."""
    from cordwood.cluster.cli.local import processes
    from cordwood.cluster.cli.local.processes import Awaited, wait_until_usable

    awaited = [Awaited(member) for member in members]
    for broker in awaited:
        if broker.member in idle:
            broker.process = processes.start(broker.member, security.first_users)
            ours[broker.process.pid] = broker.member
    directory.write_pids(members, directory.pids() | {member.broker_id: pid for pid, member in ours.items()})
    wait_until_usable(awaited, security.client())
    security.forget_first_users()


def _introduce(client_file: Path, member: "LocalBroker") -> None:
    """Print what to do next with a closed cluster."""
    scheme = "https" if member.settings.http_security_protocol == "SSL" else "http"
    note(f"Clients and commands connect with {client_file}: cordwood status --command-config {client_file}")
    note(
        "Next: `cordwood user add` and `cordwood acl add`; the console is at"
        f" {scheme}://{member.settings.http_listen}/, for the same user and password."
    )


def _follow(ours: "dict[int, LocalBroker]", data_dir: Path) -> None:
    """Report the end of each broker until all have ended. Raises Failure if one of them failed."""
    from cordwood.cluster.cli.local import processes

    if not ours:
        note("The cluster is already running; `cordwood down` stops it.")
        return
    note("The cluster runs until Ctrl-C.")
    has_failed = False
    while ours:
        pid, status = os.wait()
        exit_code = os.waitstatus_to_exitcode(status)
        has_failed |= exit_code != 0
        broker = f"broker {ours.pop(pid).broker_id} (process {pid})"
        note(f"{broker} {processes.end_in_words(exit_code)}; restart it with `cordwood up --data-dir {data_dir}`")
    if has_failed:
        raise Failure("all brokers that this command started have stopped. See their broker.log for the reason.")


def _stop(ours: "dict[int, LocalBroker]") -> None:
    from cordwood.cluster.cli.local import processes

    running = {member.broker_id: (member, pid) for pid, member in ours.items() if processes.is_running(member, pid)}
    for sentence in processes.stop(running):
        note(sentence)
