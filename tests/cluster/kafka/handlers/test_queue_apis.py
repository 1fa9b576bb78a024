"""AcknowledgeQueue and DescribeSharePartitions: rights, receipts that are none, and brokers without HTTP."""

from collections.abc import Sequence
from uuid import UUID

import pytest
from admin_fixture import AdminFixture
from kio.schema.errors import ErrorCode

from cordwood.client.queue_messages import (
    AcknowledgeQueueRequest,
    AcknowledgeQueueResponse,
    DescribeSharePartitionsRequest,
)
from cordwood.cluster.kafka.call import Call
from cordwood.cluster.kafka.handlers import acknowledge_queue, describe_share_partitions
from cordwood.cluster.metadata.acls import AclOperation, AclResource
from cordwood.cluster.metadata.commands import BrokerId, CreateTopic
from cordwood.cluster.operations.queue_receipts import Receipt
from cordwood.cluster.security.principal import Identity

TOPIC = UUID(int=5)
RECEIPT = Receipt(1, 1, TOPIC, 0, 7, b"sixteen bytes !!")
LOCK_MS = 30_000


class Held:
    """The queues of a broker that holds every record for which it is asked."""

    def __init__(self) -> None:
        self.asked: list[Receipt | None] = []

    async def acknowledge(
        self, _group_id: str, receipts: Sequence[Receipt | None], _acknowledge_type: int
    ) -> tuple[list[ErrorCode], int]:
        self.asked += receipts
        return [ErrorCode.none if one else ErrorCode.invalid_record_state for one in receipts], LOCK_MS


class Only:
    """Grants all rights but one."""

    def __init__(self, lacking: AclResource) -> None:
        self._lacking = lacking

    def may(self, _who: Identity, _operation: AclOperation, resource: AclResource, _name: str) -> bool:
        return resource is not self._lacking

    may_see = may


@pytest.fixture
def held(admin: AdminFixture) -> Held:
    """Return the queues of the fixture's broker, which has a topic."""
    admin.propose(CreateTopic(TOPIC, "orders", ((BrokerId(1),),)))
    held = Held()
    admin.services.http_queues = held
    return held


def call(admin: AdminFixture) -> Call:
    return Call(admin.services, 0, "test", "127.0.0.1", "PLAINTEXT")


def acknowledge(admin: AdminFixture, *receipts: str, acknowledge_type: int = 1) -> AcknowledgeQueueResponse:
    request = AcknowledgeQueueRequest(group_id="workers", acknowledge_type=acknowledge_type, receipts=receipts)
    return admin.runner.run(acknowledge_queue.handle(request, call(admin)))


def codes(response: AcknowledgeQueueResponse) -> list[ErrorCode]:
    assert response.error_code is ErrorCode.none, response
    return [ErrorCode(number) for number in response.outcomes]


def test_receipts_are_passed_on_and_other_text_is_not(admin: AdminFixture, held: Held) -> None:
    response = acknowledge(admin, RECEIPT.text, "no receipt")
    assert codes(response) == [ErrorCode.none, ErrorCode.invalid_record_state]
    assert response.lock_ms == LOCK_MS
    assert held.asked == [RECEIPT, None]


def test_a_broker_without_http_holds_nothing(admin: AdminFixture, held: Held) -> None:
    admin.services.http_queues = None
    assert codes(acknowledge(admin, RECEIPT.text)) == [ErrorCode.invalid_record_state]
    assert held.asked == []


@pytest.mark.usefixtures("held")
@pytest.mark.parametrize("acknowledge_type", [-1, 0, 5])
def test_other_types_of_acknowledgement_are_refused(admin: AdminFixture, acknowledge_type: int) -> None:
    response = acknowledge(admin, RECEIPT.text, acknowledge_type=acknowledge_type)
    assert response.error_code is ErrorCode.invalid_request


def test_without_a_right_nothing_is_acknowledged(admin: AdminFixture, held: Held) -> None:
    admin.services.authorizer = Only(AclResource.TOPIC)  # type: ignore[assignment]
    assert codes(acknowledge(admin, RECEIPT.text)) == [ErrorCode.topic_authorization_failed]
    admin.services.authorizer = Only(AclResource.GROUP)  # type: ignore[assignment]
    assert acknowledge(admin, RECEIPT.text).error_code is ErrorCode.group_authorization_failed
    described = admin.runner.run(
        describe_share_partitions.handle(DescribeSharePartitionsRequest(group_id="workers"), call(admin))
    )
    assert described.error_code is ErrorCode.group_authorization_failed
    assert not any(held.asked)
