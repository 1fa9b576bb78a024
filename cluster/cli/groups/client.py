"""Requests about groups: to a group's coordinator, or to all brokers."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

from kio.schema.api_versions.v3.request import ApiVersionsRequest
from kio.schema.describe_cluster.v1.request import DescribeClusterRequest
from kio.schema.errors import ErrorCode
from kio.schema.find_coordinator.v4.request import FindCoordinatorRequest
from kio.schema.list_groups.v5.request import ListGroupsRequest

from cordwood.client.blocking import BlockingConnection, connect
from cordwood.cluster.cli.client import CONNECT_TIMEOUT_S, Target, address_text, blocking_connection
from cordwood.cluster.cli.exits import ExitCode, Failure, reason_of

PATIENCE_S = 20.0
"""Time in which a coordinator may be found, and load its groups."""
PAUSE_S = 0.1
GROUP = 0
"""The key type of FindCoordinator."""
_PASSING = frozenset(
    {
        ErrorCode.coordinator_not_available,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.not_coordinator,
    }
)


class Coordinator(NamedTuple):
    """The broker that coordinates a group."""

    broker_id: int
    host: str
    port: int


class GroupRequests:
    """Requests to the coordinators of groups, over connections that are kept."""

    def __init__(self, first: BlockingConnection, target: Target, stack: ExitStack) -> None:
        self._first, self._target, self._stack = first, target, stack
        self._connections: dict[str, BlockingConnection] = {}
        self._apis: dict[str, frozenset[int]] = {}
        self._deadline_s = time.monotonic() + PATIENCE_S

    def list_groups(self) -> tuple[list[tuple[int, Any]], list[str]]:
        """Return each group with its coordinator, and why brokers did not answer."""
        brokers = self._first.ask(DescribeClusterRequest(include_cluster_authorized_operations=False)).brokers
        found: list[tuple[int, Any]] = []
        reasons = []
        for broker in sorted(brokers, key=lambda broker: int(broker.broker_id)):
            try:
                connection = self._connected(address_text(broker.host, broker.port))
                answer = connection.ask(ListGroupsRequest(states_filter=(), types_filter=()))
            except OSError as error:
                reasons.append(f"broker {broker.broker_id} does not answer ({reason_of(error)})")
                continue
            if answer.error_code is ErrorCode.none:
                found += [(int(broker.broker_id), group) for group in answer.groups]
            else:
                reasons.append(f"broker {broker.broker_id} answers {answer.error_code.name.upper()}")
        return found, reasons

    def coordinator(self, group: str) -> Coordinator:
        """Return the coordinator of a group. Raises Failure."""
        request = FindCoordinatorRequest(key_type=GROUP, coordinator_keys=(group,))
        while True:
            (found,) = self._first.ask(request).coordinators
            if found.error_code is ErrorCode.none:
                return Coordinator(int(found.node_id), found.host, int(found.port))
            self._wait(found.error_code, found.error_message)

    def ask(self, group: str, request: Any, code_of: Any) -> Any:
        """Send a request to a group's coordinator. Repeat it while `code_of` its response is an error that passes."""
        while True:
            where = self.coordinator(group)
            response = self._at(where).ask(request)
            code = code_of(response)
            if code not in _PASSING:
                return response
            self._wait(code, None)

    def supports(self, group: str, api_key: int) -> bool:
        """Return whether the group's coordinator has an API: brokers of version 0.2 have not those of all types."""
        where = self.coordinator(group)
        address = address_text(where.host, where.port)
        if address not in self._apis:
            request = ApiVersionsRequest(client_software_name="cordwood-cli", client_software_version="1")
            self._apis[address] = frozenset(int(row.api_key) for row in self._at(where).ask(request).api_keys)
        return api_key in self._apis[address]

    def ask_any(self, request: Any) -> Any:
        """Send a request that any broker answers."""
        return self._first.ask(request)

    def leaders(self, topics: list[str]) -> dict[tuple[str, int], str]:
        """Return the addresses of the leaders of all partitions of these topics that have one."""
        from kio.schema.metadata.v12.request import MetadataRequest, MetadataRequestTopic

        if not topics:
            return {}
        wanted = tuple(MetadataRequestTopic(topic_id=None, name=topic) for topic in topics)
        answer = self._first.ask(
            MetadataRequest(topics=wanted, allow_auto_topic_creation=False, include_topic_authorized_operations=False)
        )
        addresses = {broker.node_id: address_text(broker.host, broker.port) for broker in answer.brokers}
        return {
            (str(topic.name), int(row.partition_index)): addresses[row.leader_id]
            for topic in answer.topics
            for row in topic.partitions
            if row.leader_id in addresses
        }

    def ask_at(self, address: str, request: Any) -> Any:
        """Send a request to the broker at an address. Raises OSError."""
        return self._connected(address).ask(request)

    def _at(self, where: Coordinator) -> BlockingConnection:
        try:
            return self._connected(address_text(where.host, where.port))
        except OSError as error:
            sentence = f"the coordinator, broker {where.broker_id}, does not answer ({reason_of(error)})."
            raise Failure(sentence, ExitCode.UNREACHABLE) from None

    def _connected(self, address: str) -> BlockingConnection:
        if address not in self._connections:
            made = connect(address, CONNECT_TIMEOUT_S, "cordwood-cli", self._target.security)
            self._connections[address] = self._stack.enter_context(made)
        return self._connections[address]

    def _wait(self, code: ErrorCode, message: str | None) -> None:
        """Wait before the next attempt. Raises Failure for an error that does not pass, or if the time is up."""
        if code not in _PASSING or time.monotonic() >= self._deadline_s:
            raise refused(code, message)
        time.sleep(PAUSE_S)


@contextmanager
def group_client(target: Target) -> Iterator[GroupRequests]:
    """Yield a client of the cluster. An OSError in the block becomes a Failure."""
    with blocking_connection(target) as first, ExitStack() as stack:
        yield GroupRequests(first, target, stack)


def refused(code: ErrorCode, message: str | None) -> Failure:
    """Return the failure of a request that a broker refused."""
    words = f"{message.rstrip('.')} ({code.name.upper()})" if message else code.name.upper()
    return Failure(f"the broker refused: {words}.")


def check(code: ErrorCode, message: str | None = None) -> None:
    """Raise Failure unless `code` is success."""
    if code is not ErrorCode.none:
        raise refused(code, message)
