"""The end of a run: everything is read, every replica looked at, and all that was ever said held against it."""

import uuid
from contextlib import closing
from dataclasses import dataclass

import numpy as np
from confluent_kafka import Consumer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient

from cordwood.chaos.checks import Anomaly, check
from cordwood.chaos.history import HistoryBuilder
from cordwood.chaos.live import histories, replica_logs
from cordwood.chaos.live.campaign import IN_SYNC_S, WENT_WRONG, Campaign, unavailable
from cordwood.chaos.live.client_rows import POLLS, SENDS, RowArray, SendKind
from cordwood.chaos.live.crowd import Load, rows_of
from cordwood.chaos.report.series import Answers

ANSWER_S = 20.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """`read` counts what consumers by assignment were given."""

    anomalies: list[Anomaly]
    acknowledged: int
    read: int
    replicas: int
    """How many log directories were looked at."""
    sent_again: int
    """Records that a client sent twice under two epochs, and that are twice in the log for that reason."""
    answers: Answers


@dataclass(frozen=True, slots=True)
class LookedAt:
    """How many brokers' disks were read, and where copies of a record lie that its client sent again."""

    brokers: int = 0
    sent_again: frozenset[histories.Place] = frozenset()


def judge(campaign: Campaign) -> Verdict:
    """End a campaign's clients, and its brokers where that is granted, and say what was broken from start to end."""
    crowd = campaign.crowd
    history = HistoryBuilder()
    anomalies = list(campaign.anomalies)
    looked_at, is_in_sync = LookedAt(), True
    anomalies += crowd.stop_sending()
    try:
        anomalies += _read_to_the_end(campaign)
    except WENT_WRONG as failure:
        is_in_sync = False
        anomalies.append(unavailable("at the end", failure))
    anomalies += crowd.stop_reading()
    try:
        looked_at = _look_at_replicas(campaign, history, anomalies, is_in_sync=is_in_sync)
    except WENT_WRONG as failure:
        anomalies.append(unavailable("as replicas were looked at", failure))
    sends, polls = rows_of(crowd.producer_files, SENDS), rows_of(crowd.consumer_files, POLLS)
    members = rows_of(crowd.member_files, POLLS)
    histories.add_sends(history, sends)
    histories.add_polls(history, polls + members, looked_at.sent_again)
    histories.add_commits(history, members)
    anomalies += check(history.build())
    anomalies += histories.told_errors(polls + members)
    anomalies += histories.given_up(sends)
    answers = _answers(sends, campaign.began_s)
    return Verdict(
        anomalies=anomalies,
        acknowledged=int(answers.is_acknowledged.sum()),
        read=sum(map(histories.polled_count, polls)),
        replicas=looked_at.brokers,
        sent_again=len(looked_at.sent_again),
        answers=answers,
    )


def _read_to_the_end(campaign: Campaign) -> list[Anomaly]:
    """Have every consumer read all that there is. Returns what they did not manage."""
    cluster, crowd = campaign.target.cluster, campaign.crowd
    cluster.wait_in_sync(IN_SYNC_S)
    with closing(_reader(cluster.bootstrap, crowd.load)) as reader:
        return crowd.read_to(_ends(reader, crowd.load))


def _look_at_replicas(
    campaign: Campaign, history: HistoryBuilder, anomalies: list[Anomaly], *, is_in_sync: bool
) -> LookedAt:
    """Add what the cluster itself has to what its clients say. Replicas that lag need not be alike."""
    cluster, load = campaign.target.cluster, campaign.crowd.load
    with closing(_reader(cluster.bootstrap, load)) as reader:
        histories.add_final_commits(history, _committed(reader, load))
    if campaign.target.log_directories is None:
        return LookedAt()
    topic_id = _topic_id(cluster.bootstrap, load.topic)
    if is_in_sync:
        cluster.wait_in_sync(IN_SYNC_S)
    data = campaign.target.log_directories()
    replicas = histories.replicas_on(data, topic_id)
    again = histories.sent_again(replicas)
    if is_in_sync:
        histories.add_replicas(history, replicas, again)
        told = {(topic_id, str(partition)) for partition in histories.differing(replicas)}
        damage = (*replica_logs.divergences(data, told), *replica_logs.damage(data))
        anomalies += (Anomaly(found.name, found.what, (), 1) for found in damage)
    return LookedAt(len(data), again)


def _reader(bootstrap: str, load: Load) -> Consumer:
    return Consumer({"bootstrap.servers": bootstrap, "group.id": load.topic, "log_level": 0})


def _ends(reader: Consumer, load: Load) -> dict[int, int]:
    """Where each partition is committed up to, now that nobody sends any more. Raises KafkaException."""
    places = (TopicPartition(load.topic, partition) for partition in range(load.partitions))
    return {place.partition: reader.get_watermark_offsets(place, timeout=ANSWER_S)[1] for place in places}


def _committed(reader: Consumer, load: Load) -> dict[int, int]:
    """What the group is told as its committed offsets. Raises KafkaException."""
    places = [TopicPartition(load.topic, partition) for partition in range(load.partitions)]
    return {place.partition: place.offset for place in reader.committed(places, timeout=ANSWER_S) if place.offset >= 0}


def _topic_id(bootstrap: str, topic: str) -> str:
    """As directories are named by it. Raises KafkaException."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    described = admin.describe_topics(TopicCollection([topic]), request_timeout=ANSWER_S)[topic].result(ANSWER_S)
    high, low = described.topic_id.get_most_significant_bits(), described.topic_id.get_least_significant_bits()
    return str(uuid.UUID(int=(high % 2**64) << 64 | low % 2**64))


def _answers(sends: list[RowArray], began_s: float) -> Answers:
    rows = np.concatenate(sends)
    rows = rows[rows["kind"] != SendKind.INVOKED]
    return Answers(
        partition=rows["partition"],
        sent_s=rows["invoked_ns"] / 1e9 - began_s,
        answered_s=rows["at_ns"] / 1e9 - began_s,
        is_acknowledged=rows["kind"] == SendKind.ACKNOWLEDGED,
    )
