"""UnregisterBroker in every version: only a stopped broker without replicas is removed."""

from collections.abc import Iterator
from uuid import UUID

import pytest
from admin_fixture import AdminFixture
from kio.schema.errors import ErrorCode

from cordwood.cluster.kafka.handlers import unregister_broker
from cordwood.cluster.metadata.commands import BrokerId, CreateTopic, DeleteTopic


@pytest.fixture
def admin() -> Iterator[AdminFixture]:
    fixture = AdminFixture(brokers=2)
    fixture.propose(CreateTopic(UUID(int=1), "flights", ((BrokerId(2),),)))
    yield fixture
    fixture.close()


def unregister(admin: AdminFixture, version: int, broker: int) -> tuple[ErrorCode, str | None]:
    response = admin.ask(unregister_broker, version, broker_id=broker)
    return response.error_code, response.error_message


@pytest.mark.parametrize("version", unregister_broker.KEY.versions)
def test_every_version_forgets_a_broker(admin: AdminFixture, version: int) -> None:
    admin.propose(DeleteTopic(UUID(int=1)))
    admin.fence(2)
    assert unregister(admin, version, 2) == (ErrorCode.none, None)
    assert set(admin.image.brokers) == {1}
    assert unregister(admin, version, 2) == (ErrorCode.broker_id_not_registered, "Broker 2 is not registered.")


def test_a_broker_that_runs_or_holds_partitions_is_not_forgotten(admin: AdminFixture) -> None:
    running = "Broker 2 is running: stop it first."
    assert unregister(admin, 0, 2) == (ErrorCode.invalid_request, running)
    admin.fence(2)
    holding = "Broker 2 has replicas of topic 'flights': move them to other brokers first."
    assert unregister(admin, 0, 2) == (ErrorCode.invalid_request, holding)
    assert set(admin.image.brokers) == {1, 2}
