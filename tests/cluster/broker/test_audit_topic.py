"""The writer of the audit topic: each line once and in order, also after refusals, and the oldest give way."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

from kio.schema.errors import ErrorCode
from virtual_time import VirtualTimeLoop

from cordwood.cluster.broker import audit_topic
from cordwood.cluster.broker.audit_topic import AuditTopic
from cordwood.cluster.coordination.topic import PartitionLeadership, ReplicatedTopic
from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.security.audit.log import NoAudit
from cordwood.storage.records import decode


class ScriptedTopic:
    """A topic of two partitions, of which this broker leads the second once `leads` is set."""

    def __init__(self) -> None:
        self.leads = True
        self.refusals = 0
        self.values: list[bytes | None] = []

    async def create(self) -> None:
        await asyncio.sleep(0)

    def partition_count(self) -> int:
        return 2

    def leadership(self, partition: int) -> PartitionLeadership | None:
        return PartitionLeadership(partition, 1) if self.leads and partition == 1 else None

    async def append(self, leadership: PartitionLeadership, batch: bytes) -> None:
        assert leadership == PartitionLeadership(1, 1)
        await asyncio.sleep(0)
        if self.refusals:
            self.refusals -= 1
            raise Refused(ErrorCode.coordinator_not_available)
        self.values += [record.value for record in decode(batch)]


def run(scene: Callable[[AuditTopic, ScriptedTopic], Coroutine[Any, Any, None]]) -> list[bytes | None]:
    """Run the scene, and return the values of all records after a minute."""

    async def whole() -> list[bytes | None]:
        topic, audit = ScriptedTopic(), NoAudit()
        writer = AuditTopic(cast(ReplicatedTopic, topic), lambda: 1_000)
        writer.start(audit)
        assert audit.publish == writer.publish
        await scene(writer, topic)
        await asyncio.sleep(60)
        await writer.close()
        return topic.values

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(whole())


def test_each_line_is_a_record_once_and_in_order() -> None:
    lines = [b"%d\n" % number for number in range(3 * audit_topic.BATCH_MAX + 1)]

    async def scene(writer: AuditTopic, _topic: ScriptedTopic) -> None:
        writer.publish(lines[:2])
        await asyncio.sleep(1)
        writer.publish(lines[2:])

    assert run(scene) == [line.rstrip() for line in lines]


def test_what_is_refused_is_sent_again() -> None:
    async def scene(writer: AuditTopic, topic: ScriptedTopic) -> None:
        topic.refusals = 3
        writer.publish([b"a\n", b"b\n"])

    assert run(scene) == [b"a", b"b"]


def test_lines_wait_until_the_broker_leads_a_partition_and_the_oldest_give_way() -> None:
    count = audit_topic.WAITING_MAX + 5

    async def scene(writer: AuditTopic, topic: ScriptedTopic) -> None:
        topic.leads = False
        writer.publish([b"%d\n" % number for number in range(count)])
        await asyncio.sleep(10)
        assert topic.values == []
        topic.leads = True

    assert run(scene) == [b"%d" % number for number in range(5, count)]
