"""DescribeCluster in every version."""

import pytest
from admin_fixture import AdminFixture
from kio.schema.errors import ErrorCode

from cordwood.cluster.kafka.handlers import describe_cluster


@pytest.mark.parametrize("version", describe_cluster.KEY.versions)
def test_every_version_has_the_brokers_of_a_listener(version: int) -> None:
    admin = AdminFixture(brokers=2)
    response = admin.ask(describe_cluster, version, listener="LAN")
    assert (response.error_code, response.cluster_id, response.controller_id) == (ErrorCode.none, "test-cluster", 1)
    rows = [(row.broker_id, row.host, row.port, row.rack) for row in response.brokers]
    assert rows == [(1, "lan-1", 9093, "rack-1"), (2, "lan-2", 9093, "rack-2")]
    assert response.cluster_authorized_operations == -(1 << 31)
    admin.close()


@pytest.mark.parametrize("version", describe_cluster.KEY.versions)
def test_authorized_operations_are_returned_on_request(admin: AdminFixture, version: int) -> None:
    response = admin.ask(describe_cluster, version, include_cluster_authorized_operations=True)
    assert response.cluster_authorized_operations == 0b1111110100000


@pytest.mark.parametrize(
    ("endpoint_type", "code"), [(2, ErrorCode.mismatched_endpoint_type), (9, ErrorCode.unsupported_endpoint_type)]
)
def test_only_brokers_listen_here(admin: AdminFixture, endpoint_type: int, code: ErrorCode) -> None:
    response = admin.ask(describe_cluster, 2, endpoint_type=endpoint_type)
    assert response.error_code is code
    assert response.brokers == ()


@pytest.mark.parametrize("version", describe_cluster.KEY.versions)
def test_fenced_brokers_are_returned_on_request(version: int) -> None:
    admin = AdminFixture(brokers=2)
    admin.fence(2)
    response = admin.ask(describe_cluster, version)
    assert [row.broker_id for row in response.brokers] == [1]
    response = admin.ask(describe_cluster, version, include_fenced_brokers=True)
    if version >= 2:
        assert [(row.broker_id, row.is_fenced) for row in response.brokers] == [(1, False), (2, True)]
    admin.close()


def test_any_broker_in_service_takes_what_is_meant_for_a_controller_that_is_not() -> None:
    admin = AdminFixture(brokers=3)
    admin.fence(1)
    named = {admin.ask(describe_cluster, 0).controller_id for _ in range(50)}
    assert named == {2, 3}
    for broker in (2, 3):
        admin.fence(broker)
    assert admin.ask(describe_cluster, 0).controller_id == -1
    admin.close()
