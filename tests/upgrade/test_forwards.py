"""A rolling upgrade from the previous release under load, up to the finalized level, which keeps old brokers out."""

import pytest
from rolling_cluster import BROKERS, THIS_RELEASE, Load, RollingCluster

from cordwood.cluster.cli.exits import ExitCode

LAST = BROKERS[-1]


@pytest.mark.timeout(400)
def test_brokers_go_over_one_by_one_and_the_level_is_finalized(
    cluster: RollingCluster, load: Load, previous: str
) -> None:
    for broker in BROKERS:
        early = cluster.run("feature", "upgrade")
        assert early.exit_code == ExitCode.FAILED
        cluster.restart(broker, THIS_RELEASE)
    assert "only supports versions 1" in early.stderr
    assert early.stderr.count(f"Broker {LAST} ") == 1
    assert finalized(cluster) == "1"
    assert cluster.run("feature", "upgrade", "--dry-run").text == "metadata.version: 1 can be raised to 3\n"
    assert cluster.run("feature", "upgrade").text == "metadata.version: 1 is raised to 3\n"
    assert finalized(cluster) == "3"

    cluster.stop(LAST)
    log = cluster.try_start(LAST, previous)
    assert f"broker {LAST} supports metadata.version 1, and the cluster has finalized 3: install the release of" in log
    cluster.start(THIS_RELEASE)
    load.check()


def finalized(cluster: RollingCluster) -> str:
    rows = cluster.run("feature", "list", "--json").json
    [level] = [row["finalized"] for row in rows if row["feature"] == "metadata.version" and row["where"] == "cluster"]
    return str(level)
