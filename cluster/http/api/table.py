"""The route table of the HTTP API: a new resource is a module in this folder and a line in this table."""

from typing import Any

from cordwood.cluster.http.api import (
    archive,
    balance,
    brokers,
    cluster,
    configs,
    cuts,
    groups,
    leaders,
    login,
    partitions,
    queues,
    quotas,
    topics,
    transactions,
)
from cordwood.cluster.http.records import read, write
from cordwood.cluster.http.route import Route

ROUTES: tuple[Route[Any, Any], ...] = (
    # Routes are matched in this order; these two may be requested thousands of times a second.
    write.ROUTE,
    read.ROUTE,
    *cluster.ROUTES,
    *brokers.ROUTES,
    *topics.ROUTES,
    *partitions.ROUTES,
    *configs.ROUTES,
    *leaders.ROUTES,
    *balance.ROUTES,
    *groups.ROUTES,
    *queues.ROUTES,
    *transactions.ROUTES,
    *cuts.ROUTES,
    *quotas.ROUTES,
    *archive.ROUTES,
    *login.ROUTES,
)
