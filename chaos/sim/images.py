"""Legal successors of a metadata image, independent of the commands in between."""

from collections.abc import Iterator

from cordwood.chaos.sim.chores import LOSSY_TOPIC
from cordwood.cluster.metadata.image import NO_LEADER, Image, PartitionImage

Found = Iterator[tuple[str, str]]
"""The kind of a violation, named after its rule, and a sentence."""


def changes_fit(old: Image, new: Image) -> Found:
    """Check rules 3, 6, 7 and 8 between an image and a later one."""
    yield from _restarts_cost_the_lead(old, new)
    for topic in new.topics_by_id.values():
        before = old.topics_by_id.get(topic.id)
        if before is topic:
            continue
        for index, partition in enumerate(topic.partitions):
            known = before.partitions[index] if before is not None and index < len(before.partitions) else None
            where = f"{topic.name}/{index}"
            if partition.leader != NO_LEADER and partition.leader not in partition.isr:
                yield "rule-3", f"{where} is led by {partition.leader}, which is not in sync: {partition.isr}"
            yield from _eligible_are_needed(where, partition, new.min_isr(topic))
            if known is not None:
                if topic.name != LOSSY_TOPIC:
                    yield from _leaders_have_it_all(where, known, partition)
                yield from _epochs_go_on(where, known, partition)
                yield from _joiners_are_alive(where, known, partition, new)


def _epochs_go_on(where: str, old: PartitionImage, new: PartitionImage) -> Found:
    if new.leader_epoch < old.leader_epoch:
        yield "rule-3", f"the leader epoch of {where} went from {old.leader_epoch} to {new.leader_epoch}"
    if new.partition_epoch < old.partition_epoch:
        yield "rule-7", f"the partition epoch of {where} went from {old.partition_epoch} to {new.partition_epoch}"
    if new.leader not in (old.leader, NO_LEADER) and new.leader_epoch == old.leader_epoch:
        yield "rule-3", f"{where} has another leader in epoch {new.leader_epoch}: {old.leader}, then {new.leader}"
    if set(new.isr) != set(old.isr) and new.partition_epoch == old.partition_epoch:
        yield "rule-7", f"the in-sync set of {where} changed within partition epoch {new.partition_epoch}"


def _joiners_are_alive(where: str, old: PartitionImage, new: PartitionImage, image: Image) -> Found:
    """Rule 6 (KIP-841): no fenced broker joins an in-sync set."""
    for broker_id in new.isr:
        broker = image.brokers.get(broker_id)
        if broker_id not in old.isr and len(new.isr) > 1 and (broker is None or broker.is_fenced):
            yield "rule-6", f"broker {broker_id} came into the in-sync set of {where}, and is fenced"


def _leaders_have_it_all(where: str, old: PartitionImage, new: PartitionImage) -> Found:
    """Promise 5: only an in-sync or eligible replica is elected."""
    is_next = new.partition_epoch == old.partition_epoch + 1
    if is_next and new.leader not in (NO_LEADER, old.leader, *old.isr, *old.elr):
        yield "rule-8", f"{where} is led by {new.leader}; in sync were {old.isr}, eligible {old.elr}"


def _eligible_are_needed(where: str, partition: PartitionImage, min_isr: int) -> Found:
    """KIP-966: eligible replicas are outside the ISR, and exist only while the ISR has fewer than `min_isr` members."""
    if set(partition.elr) & set(partition.isr) or (partition.elr and len(partition.isr) >= min_isr):
        yield "rule-8", f"{where} has {partition.elr} eligible while {partition.isr} are in sync"


def _restarts_cost_the_lead(old: Image, new: Image) -> Found:
    """Rule 3, KIP-841: a new incarnation leads in a new epoch only."""
    restarted = {
        broker_id
        for broker_id, broker in new.brokers.items()
        if broker_id in old.brokers and old.brokers[broker_id].epoch != broker.epoch
    }
    for topic in new.topics_by_id.values() if restarted else ():
        before = old.topics_by_id.get(topic.id)
        for known, partition in zip(before.partitions if before is not None else (), topic.partitions, strict=False):
            same = partition.leader, partition.leader_epoch
            if partition.leader in restarted and same == (known.leader, known.leader_epoch):
                yield "rule-3", f"broker {same[0]} was restarted, and leads {topic.name} in epoch {same[1]} as before"
