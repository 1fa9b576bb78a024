"""A replacement for the configuration of confluent-kafka's tests: SUITE_BROKERS has the address of the brokers."""

import os

import pytest
from confluent_kafka.admin import AdminClient


class Cluster:
    """The part of the suite's cluster that the tests of administration use."""

    def admin(self) -> AdminClient:
        """Return an admin client."""
        return AdminClient({"bootstrap.servers": os.environ["SUITE_BROKERS"]})


@pytest.fixture
def kafka_cluster() -> Cluster:
    """Return the running cluster."""
    return Cluster()
