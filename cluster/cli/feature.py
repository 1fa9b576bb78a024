"""`cordwood feature`: the feature levels of the cluster, and their upgrade after all brokers have a new release."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from cordwood.cluster.cli.client import address_text, blocking_connection, target_of
from cordwood.cluster.cli.exits import Failure
from cordwood.cluster.cli.options import DEFAULT_SERVERS, INT16_MAX, AsJson, BootstrapServers, CommandConfig
from cordwood.cluster.cli.output import print_rows
from cordwood.cluster.metadata.features import METADATA_VERSION, OF_FIRST_RELEASE, Levels

if TYPE_CHECKING:
    from cordwood.client.blocking import BlockingConnection
    from cordwood.cluster.cli.client import Target

UPGRADE_S = 30.0
ANSWER_S = 5.0
CLUSTER = "cluster"

app = typer.Typer(
    no_args_is_help=True, help="Show the feature levels of the cluster, and upgrade them after a rolling upgrade."
)


@app.command(name="list")
def list_features(
    as_json: AsJson = False, servers: BootstrapServers = DEFAULT_SERVERS, command_config: CommandConfig = None
) -> None:
    """List the features with their levels, and for each broker the levels of metadata.version that it supports."""
    target = target_of(servers, command_config)
    with blocking_connection(target) as connection:
        features, brokers = _features(connection), _brokers(connection)
    rows: list[dict[str, object]] = [
        {"feature": name, "where": CLUSTER, "supported": str(levels), "finalized": str(level)}
        for name, (levels, level) in sorted(features.items())
    ]
    for broker_id, address in sorted(brokers.items()):
        supported = _supported_by(target, address)
        rows.append(
            {
                "feature": METADATA_VERSION,
                "where": f"broker {broker_id}",
                "supported": "unreachable" if supported is None else str(supported),
                "finalized": "",
            }
        )
    print_rows(rows, ["FEATURE", "WHERE", "SUPPORTED", "FINALIZED"], as_json, "The brokers announce no features.")


@app.command()
def upgrade(
    level: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=INT16_MAX,
            help="The metadata.version to finalize; the default is the newest of the broker that is asked.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check whether the upgrade is possible, and do nothing.")
    ] = False,
    servers: BootstrapServers = DEFAULT_SERVERS,
    command_config: CommandConfig = None,
) -> None:
    """Finalize metadata.version, once every broker runs the new release: its new features need the new level.

    There is no way back: brokers of an older release can then no longer join the cluster.
    """
    from kio.schema.errors import ErrorCode
    from kio.schema.update_features.v2 import UpdateFeaturesRequest
    from kio.schema.update_features.v2.request import FeatureUpdateKey

    with blocking_connection(target_of(servers, command_config), UPGRADE_S) as connection:
        features = _features(connection)
        if METADATA_VERSION not in features:
            raise Failure("this broker runs release 0.1, which has no feature levels: upgrade it first.")
        supported, finalized = features[METADATA_VERSION]
        wanted = supported.newest if level is None else level
        if wanted == finalized:
            typer.echo(f"{METADATA_VERSION}: {finalized} is finalized already")
            return
        update = FeatureUpdateKey(feature=METADATA_VERSION, max_version_level=wanted)
        answer = connection.ask(UpdateFeaturesRequest(feature_updates=(update,), validate_only=dry_run))
    if answer.error_code is not ErrorCode.none:
        reason = answer.error_message or answer.error_code.name.upper()
        raise Failure(f"the broker refused: {reason.rstrip('.')}.")
    typer.echo(f"{METADATA_VERSION}: {finalized} {'can be raised' if dry_run else 'is raised'} to {wanted}")


def _features(connection: "BlockingConnection") -> dict[str, tuple[Levels, int]]:
    """Return the supported levels and the finalized level of each feature that a broker announces."""
    answer = _versions(connection)
    supported = {one.name: Levels(one.min_version, one.max_version) for one in answer.supported_features}
    finalized = {one.name: int(one.max_version_level) for one in answer.finalized_features}
    return {name: (supported[name], level) for name, level in finalized.items() if name in supported}


def _versions(connection: "BlockingConnection") -> Any:
    from kio.schema.api_versions.v4 import ApiVersionsRequest

    from cordwood import __version__

    return connection.ask(ApiVersionsRequest(client_software_name="cordwood-cli", client_software_version=__version__))


def _brokers(connection: "BlockingConnection") -> dict[int, str]:
    """Return the addresses of the brokers that run."""
    from kio.schema.describe_cluster.v1 import DescribeClusterRequest

    answer = connection.ask(DescribeClusterRequest(include_cluster_authorized_operations=False))
    return {int(broker.broker_id): address_text(broker.host, broker.port) for broker in answer.brokers}


def _supported_by(target: "Target", address: str) -> Levels | None:
    """Return the levels of metadata.version that a broker supports; None if it does not answer."""
    from cordwood.client.blocking import connect

    try:
        with connect(address, ANSWER_S, "cordwood-cli", target.security) as connection:
            features = _features(connection)
    except OSError:
        return None
    return features[METADATA_VERSION][0] if METADATA_VERSION in features else OF_FIRST_RELEASE
