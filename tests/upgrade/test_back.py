"""A rolling upgrade from the previous release that is taken back before its level is finalized, under load."""

import pytest
from rolling_cluster import BROKERS, THIS_RELEASE, Load, RollingCluster


@pytest.mark.timeout(400)
def test_brokers_go_over_and_back_one_by_one(cluster: RollingCluster, load: Load, previous: str) -> None:
    for broker in BROKERS:
        cluster.restart(broker, THIS_RELEASE)
    for broker in BROKERS:
        cluster.restart(broker, previous)
    load.check()
