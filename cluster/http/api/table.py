"""Every route of the API: a new resource is a module here and a line in this table."""

from typing import Any

from cordwood.cluster.http.api import brokers, cluster, configs, groups, leaders, partitions, topics
from cordwood.cluster.http.records import read, write
from cordwood.cluster.http.route import Route

ROUTES: tuple[Route[Any, Any], ...] = (
    # Paths are tried in this order, and no others are asked for thousands of times a second.
    write.ROUTE,
    read.ROUTE,
    *cluster.ROUTES,
    *brokers.ROUTES,
    *topics.ROUTES,
    *partitions.ROUTES,
    *configs.ROUTES,
    *leaders.ROUTES,
    *groups.ROUTES,
)
