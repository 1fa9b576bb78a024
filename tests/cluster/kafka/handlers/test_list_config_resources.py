"""ListConfigResources in every version: the existing topics and brokers."""

from typing import Any
from uuid import UUID

import pytest
from admin_fixture import AdminFixture
from kio.schema.errors import ErrorCode

from cordwood.cluster.kafka.handlers import list_config_resources
from cordwood.cluster.metadata.commands import BrokerId, CreateTopic

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32


@pytest.fixture
def admin(admin: AdminFixture) -> AdminFixture:
    admin.propose(CreateTopic(UUID(int=1), "flights", ((BrokerId(1),),)))
    return admin


def listed(admin: AdminFixture, *types: int) -> list[tuple[int, str]]:
    response: Any = admin.ask(list_config_resources, 1, resource_types=types)
    assert response.error_code is ErrorCode.none
    return [(row.resource_type, row.resource_name) for row in response.config_resources]


def test_the_first_version_lists_client_metrics_and_there_are_none(admin: AdminFixture) -> None:
    response = admin.ask(list_config_resources, 0)
    assert (response.error_code, response.config_resources) == (ErrorCode.none, ())


def test_the_second_version_lists_what_is_asked_for(admin: AdminFixture) -> None:
    assert listed(admin) == [(TOPIC, "flights"), (BROKER, "1")]
    assert listed(admin, BROKER) == [(BROKER, "1")]
    assert listed(admin, BROKER_LOGGER, CLIENT_METRICS, GROUP) == []
    assert list(list_config_resources.KEY.versions) == [0, 1]


def test_an_unknown_type_is_refused(admin: AdminFixture) -> None:
    response = admin.ask(list_config_resources, 1, resource_types=(TOPIC, 3))
    assert (response.error_code, response.config_resources) == (ErrorCode.unsupported_version, ())
