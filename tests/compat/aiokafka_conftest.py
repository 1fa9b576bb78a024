"""A replacement for the configuration of aiokafka's tests: the brokers of this project's suite, with nothing to start.

SUITE_BROKERS names host:port of an open listener, SUITE_SASL that of a listener with SASL on the same broker, if it has
one.
"""

import asyncio
import gc
import os
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

KAFKA_VERSION = "2.8.1"
ANSWER_S = 20
RESOURCES = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional_id": ResourceType.TRANSACTIONAL_ID,
}


class Admin:
    """What the suite's `ACLManager` and `KafkaConfig` do with Kafka's scripts, done by an admin client."""

    def __init__(self) -> None:
        self._client = AdminClient({"bootstrap.servers": os.environ["SUITE_BROKERS"]})
        self._added: list[AclBinding] = []

    def list_acl(self) -> None:
        """Do nothing: the suite prints them."""

    def add_acl(self, operation: str, **words: object) -> None:
        """Create one ACL, as kafka-acls.sh would with the same words."""
        kind, name = ResourceType.BROKER, "kafka-cluster"
        for word, resource in RESOURCES.items():
            if word in words:
                kind, name = resource, str(words[word])
        allowed = words.get("allow_principal")
        binding = AclBinding(
            kind,
            name,
            ResourcePatternType.LITERAL,
            f"User:{allowed or words['deny_principal']}",
            "*",
            AclOperation[operation.upper()],
            AclPermissionType.ALLOW if allowed else AclPermissionType.DENY,
        )
        self._client.create_acls([binding])[binding].result(ANSWER_S)
        self._added.append(binding)

    def cleanup(self) -> None:
        """Delete the ACLs that were created."""
        fields = ("restype", "name", "resource_pattern_type", "principal", "host", "operation", "permission_type")
        filters = [AclBindingFilter(*(getattr(one, field) for field in fields)) for one in self._added]
        for deleted in self._client.delete_acls(filters).values() if filters else ():
            deleted.result(ANSWER_S)
        self._added.clear()

    def add_scram_user(self, username: str, password: str) -> None:
        """Create or replace a user."""
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            added = UserScramCredentialUpsertion(username, ScramCredentialInfo(mechanism, 4096), password.encode())
            self._client.alter_user_scram_credentials([added])[username].result(ANSWER_S)


@pytest.fixture(scope="class")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """Yield the event loop of a class of tests."""
    started = asyncio.new_event_loop()
    asyncio.set_event_loop(started)
    yield started
    started.close()
    gc.collect()
    asyncio.set_event_loop(None)


@pytest.fixture(scope="class")
def setup_test_class_serverless(request: pytest.FixtureRequest, loop: asyncio.AbstractEventLoop) -> None:
    """Set the attribute that classes use which need no broker."""
    request.cls.loop = loop


@pytest.fixture(scope="class")
def setup_test_class(request: pytest.FixtureRequest, loop: asyncio.AbstractEventLoop) -> None:
    """Set the attributes that the suite's classes use."""
    host, port = os.environ["SUITE_BROKERS"].split(":")
    admin = Admin()
    attributes = {
        "loop": loop,
        "kafka_host": host,
        "kafka_port": int(port),
        "kafka_sasl_plain_port": int(os.environ.get("SUITE_SASL", ":0").split(":")[1]),
        "kafka_version": KAFKA_VERSION,
        "hosts": [os.environ["SUITE_BROKERS"]],
        "acl_manager": admin,
        "kafka_config": admin,
    }
    for name, value in attributes.items():
        setattr(request.cls, name, value)
