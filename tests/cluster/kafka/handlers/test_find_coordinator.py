"""FindCoordinator in every version: the leader of the group's partition, or COORDINATOR_NOT_AVAILABLE without one."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from admin_fixture import AdminFixture
from kio.schema.errors import ErrorCode

from cordwood.cluster.kafka.handlers import find_coordinator
from cordwood.cluster.metadata.commands import BrokerId, CreateTopic
from cordwood.cluster.proposals.topics import CONSUMER_OFFSETS, TRANSACTION_STATE


class SecondPartition:
    """Groups that are all in partition 1."""

    async def place(self, _group_id: str) -> int:
        return 1


@pytest.fixture
def admin() -> Iterator[AdminFixture]:
    """Yield two brokers, of which the second leads the group partition."""
    fixture = AdminFixture(brokers=2)
    one, two = BrokerId(1), BrokerId(2)
    fixture.propose(CreateTopic(UUID(int=1), CONSUMER_OFFSETS, ((one,), (two,))))
    groups: Any = SecondPartition()
    fixture.services.groups = groups
    yield fixture
    fixture.close()


def find(admin: AdminFixture, version: int, key_type: int = 0) -> tuple[ErrorCode, int, str, int]:
    response = admin.ask(find_coordinator, version, key="group", key_type=key_type, coordinator_keys=("group",))
    found = response.coordinators[0] if version >= 4 else response
    return found.error_code, found.node_id, found.host, found.port


@pytest.mark.parametrize("version", find_coordinator.KEY.versions)
def test_every_version_has_the_leader_of_the_groups_partition(admin: AdminFixture, version: int) -> None:
    assert find(admin, version) == (ErrorCode.none, 2, "host-2", 9092)


@pytest.mark.parametrize("version", find_coordinator.KEY.versions)
def test_no_broker_coordinates_while_there_is_no_leader(admin: AdminFixture, version: int) -> None:
    admin.fence(2)
    assert find(admin, version) == (ErrorCode.coordinator_not_available, -1, "", -1)
    admin.unfence(2)
    assert find(admin, version) == (ErrorCode.none, 2, "host-2", 9092)


@pytest.mark.parametrize("version", find_coordinator.KEY.versions)
def test_transactional_ids_have_the_leader_of_their_own_partition(admin: AdminFixture, version: int) -> None:
    """Version 0 knows groups alone."""
    admin.propose(CreateTopic(UUID(int=2), TRANSACTION_STATE, ((BrokerId(2),), (BrokerId(1),))))
    transactions: Any = SecondPartition()
    admin.services.transactions = transactions
    assert find(admin, version, key_type=1)[1] == (1 if version else 2)
