"""InitProducerId in every version: unique producer ids, as long as the metadata quorum is available."""

import pytest
from admin_fixture import AdminFixture
from kio.schema.errors import ErrorCode

from cordwood.cluster.kafka.handlers import init_producer_id
from cordwood.cluster.kafka.producer_ids import ProducerIds
from cordwood.cluster.metadata.commands import BrokerId


@pytest.mark.parametrize("version", init_producer_id.KEY.versions)
def test_everyone_who_asks_gets_another_number(admin: AdminFixture, version: int) -> None:
    admin.services.producer_ids = ProducerIds(admin.voter, BrokerId(1))
    responses = [admin.ask(init_producer_id, version) for _ in range(3)]
    assert [response.producer_id for response in responses] == [0, 1, 2]
    assert {(response.error_code, response.producer_epoch) for response in responses} == {(ErrorCode.none, 0)}


@pytest.mark.parametrize("version", init_producer_id.KEY.versions)
def test_without_a_quorum_the_producer_is_to_ask_again(admin: AdminFixture, version: int) -> None:
    admin.services.producer_ids = ProducerIds(admin.voter, BrokerId(1))
    admin.runner.run(admin.voter.close())
    response = admin.ask(init_producer_id, version)
    assert response.error_code is ErrorCode.coordinator_load_in_progress
    assert (response.producer_id, response.producer_epoch) == (-1, -1)
