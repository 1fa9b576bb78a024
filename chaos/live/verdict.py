"""The verdict of a run: a full read of the topic, the replicas on disk, and the checks of the whole history."""

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field

import numpy as np
from confluent_kafka import Consumer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient

from cordwood.chaos.checks import Anomaly, check
from cordwood.chaos.history import Outcome
from cordwood.chaos.history_builder import HistoryBuilder
from cordwood.chaos.live import histories, replica_logs
from cordwood.chaos.live.campaign import IN_SYNC_S, WENT_WRONG, Campaign, unavailable
from cordwood.chaos.live.client_rows import POLLS, SENDS, SHARES, TRANSACTIONS, PollKind, RowArray, SendKind
from cordwood.chaos.live.decisions import Asked, Client, MarkerOnDisk, disagreements
from cordwood.chaos.live.load_clients import LoadOnCluster, consumer_group_of, ends_read, rows_of
from cordwood.chaos.live.security import client_settings
from cordwood.chaos.live.share_groups import add_share_group, finished, wait_for_end
from cordwood.chaos.live.transactional_producers import SessionLost, committed_offset, orders_of
from cordwood.chaos.report.series import Answers
from cordwood.chaos.transfers import ReadTransfers

ANSWER_S = 20.0


@dataclass(frozen=True, slots=True)
class RunVerdict:
    """Anomalies and counts of a run. `read` counts the records that consumers by assignment polled."""

    anomalies: list[Anomaly]
    acknowledged: int
    read: int
    replicas: int
    """The number of brokers whose log directories were read."""
    sent_again: int
    """Records that are in the log twice because their client sent them under two epochs."""
    client_errors: int
    """Errors that consumers got."""
    unread_by_group: int
    """Records that a consumer by assignment polled, and no member of the group."""
    finished_by_share_group: int
    """Records that members of the share group accepted or rejected with success."""
    transactions: "TransactionCounts"
    answers: Answers


@dataclass(frozen=True, slots=True)
class TransactionCounts:
    """What became of the transactions of a run, as their clients know it."""

    committed: int = 0
    aborted: int = 0
    unsure: int = 0
    """Neither was answered: the client died, or its producer could not go on."""
    open_s: Sequence[float] = ()
    """The time from the first record to the marker, of each transaction in each partition."""


@dataclass(frozen=True, slots=True)
class LookedAt:
    """The number of brokers whose log directories were read, and the places of records that their client sent again."""

    brokers: int = 0
    sent_again: frozenset[histories.Place] = frozenset()
    decisions: Sequence[MarkerOnDisk] = field(default=())


def judge(campaign: Campaign) -> RunVerdict:
    """Stop the clients, and the brokers where their disks may be read. Return the verdict over the whole run."""
    clients = campaign.clients
    history = HistoryBuilder()
    anomalies = list(campaign.anomalies)
    looked_at, is_in_sync = LookedAt(), True
    anomalies += clients.stop_sending()
    starts: Mapping[int, int] = {}
    try:
        anomalies += _read_to_the_end(campaign)
        starts, unread = _share_to_the_end(campaign)
        anomalies += unread
    except WENT_WRONG as failure:
        is_in_sync = False
        anomalies.append(unavailable("at the end", failure))
    anomalies += clients.stop_reading()
    applied: Mapping[int, int] = {}
    try:
        applied = _applied(campaign)
    except SessionLost as failure:
        anomalies.append(unavailable("as orders were looked at", failure))
    try:
        looked_at = _look_at_replicas(campaign, history, anomalies, is_in_sync=is_in_sync)
    except WENT_WRONG as failure:
        anomalies.append(unavailable("as replicas were looked at", failure))
    sends, polls = rows_of(clients.producer_files, SENDS), rows_of(clients.consumer_files, POLLS)
    transactional = rows_of(clients.transactional_files, SENDS)
    members = rows_of(clients.member_files, POLLS)
    ended = dict(enumerate(rows_of(clients.transaction_files, TRANSACTIONS), start=len(sends)))
    transactions = histories.add_transactions(history, ended, clients.load.partitions)
    histories.add_sends(history, sends + transactional, transactions)
    committed = [number for number in range(len(polls)) if clients.load.reads_committed(number)]
    for consumer in (*committed, *range(len(polls), len(polls + members))):
        history.reads_committed(consumer)
    histories.add_polls(history, polls + members, looked_at.sent_again)
    histories.add_commits(history, members)
    histories.add_ownerships(history, members, len(polls))
    new_members = _add_new_groups(campaign, history, looked_at, starts, len(polls + members))
    anomalies += check(history.build())
    anomalies += histories.reported_errors(polls + members + new_members)
    anomalies += histories.given_up(sends)
    asked = histories.asked_of(ended)
    of_values = histories.transactions_by_value(dict(enumerate(transactional, start=len(sends))))
    anomalies += disagreements(looked_at.decisions, of_values.get, asked)
    for number in committed:
        anomalies += _wrong_transfers(clients.consumer_files[number].name, polls[number], applied)
    answers = _answers(sends, campaign.began_s)
    return RunVerdict(
        anomalies=anomalies,
        acknowledged=int(answers.is_acknowledged.sum()),
        read=sum(map(histories.polled_count, polls)),
        replicas=looked_at.brokers,
        sent_again=len(looked_at.sent_again),
        client_errors=sum(map(histories.error_count, polls + members)),
        unread_by_group=histories.unread(of=[polls[number] for number in committed], by=members),
        finished_by_share_group=finished(rows_of(clients.share_files, SHARES)),
        transactions=_counts(asked, looked_at.decisions),
        answers=answers,
    )


def _read_to_the_end(campaign: Campaign) -> list[Anomaly]:
    """Wait until every consumer, and a new one, has read to the end. Return an anomaly if one has not."""
    cluster, clients = campaign.target.cluster, campaign.clients
    cluster.wait_in_sync(IN_SYNC_S)
    clients.read_again()
    with closing(_reader(cluster.bootstrap, clients.load)) as reader:
        return clients.read_to(_ends(reader, clients.load))


def _share_to_the_end(campaign: Campaign) -> tuple[Mapping[int, int], list[Anomaly]]:
    """Wait until the share group has finished all records. Return its start offsets, and an anomaly if it has not."""
    clients, load = campaign.clients, campaign.clients.load
    if not load.share_members:
        return {}, []
    [*_, last] = rows_of(clients.consumer_files, POLLS)
    ends = ends_read(last[last["kind"] == PollKind.POLLED])
    return wait_for_end(campaign.target.cluster.bootstrap, load.topic, ends)


def _add_new_groups(
    campaign: Campaign, history: HistoryBuilder, looked_at: LookedAt, starts: Mapping[int, int], first: int
) -> list[RowArray]:
    """Add the group of the consumer protocol, the share group, and the faults that both checks need to know.

    `first` is the number of the first of their members. Return the rows of the first group's members.
    """
    clients = campaign.clients
    members, shares = rows_of(clients.consumer_member_files, POLLS), rows_of(clients.share_files, SHARES)
    for consumer in range(first, first + len(members)):
        history.reads_committed(consumer)
    histories.add_polls(history, members, looked_at.sent_again, first)
    histories.add_commits(history, members, histories.CONSUMER_GROUP)
    histories.add_ownerships(history, members, first, histories.CONSUMER_GROUP)
    spans = [(campaign.began_s + span.start_s, campaign.began_s + span.end_s) for span in campaign.spans]
    histories.add_faults(history, spans)
    if shares:
        add_share_group(history, shares, first + len(members), starts, looked_at.sent_again)
    return members


def _look_at_replicas(
    campaign: Campaign, history: HistoryBuilder, anomalies: list[Anomaly], *, is_in_sync: bool
) -> LookedAt:
    """Add committed offsets and replicas to `history`. Replicas that are not in sync are not compared."""
    cluster, load = campaign.target.cluster, campaign.clients.load
    with closing(_reader(cluster.bootstrap, load)) as reader:
        histories.add_final_commits(history, _committed(reader, load))
    if load.consumer_members:
        with closing(_reader(cluster.bootstrap, load, consumer_group_of(load.topic))) as reader:
            histories.add_final_commits(history, _committed(reader, load), histories.CONSUMER_GROUP)
    if campaign.target.log_directories is None:
        return LookedAt()
    topic_id = _topic_id(cluster.bootstrap, load.topic)
    if is_in_sync:
        cluster.wait_in_sync(IN_SYNC_S)
    data = campaign.target.log_directories()
    replicas = histories.replicas_on(data, topic_id)
    if campaign.target.archived is not None:
        replicas = histories.with_archived(replicas, topic_id, campaign.target.archived)
    again = histories.sent_again(replicas, load.producers)
    if is_in_sync:
        histories.add_replicas(history, replicas, again)
        reported = {(topic_id, str(partition)) for partition in histories.differing(replicas)}
        damage = (*replica_logs.divergences(data, reported), *replica_logs.damage(data))
        anomalies += damage
    return LookedAt(len(data), again, list(histories.decisions_in(replicas)))


def _applied(campaign: Campaign) -> dict[int, int]:
    """Return how many orders each transactional client has applied, by producer number. Raises SessionLost."""
    load, bootstrap = campaign.clients.load, campaign.target.cluster.bootstrap
    return {
        load.producers + number: committed_offset(bootstrap, orders_of(load.topic, number))
        for number in range(load.transactional)
    }


def _wrong_transfers(reader: str, rows: RowArray, applied: Mapping[int, int]) -> Iterator[Anomaly]:
    """Yield what is wrong in the balances that a consumer of all partitions saw, and in their number."""
    transfers = ReadTransfers(reader)
    transfers.read(histories.entries_of(rows))
    yield from transfers.anomalies()
    for client, orders in applied.items():
        read = transfers.applied.get(client, 0)
        if read != orders:
            sentence = f"{reader} got {read} transfers of client {client}, which has committed {orders}."
            yield Anomaly("lost-write" if read < orders else "duplicate", sentence, (), abs(orders - read))


def _counts(asked: Mapping[Client, Asked], decisions: Sequence[MarkerOnDisk]) -> TransactionCounts:
    answered = [each.is_commit for each in asked.values() if each.outcome == Outcome.OK]
    return TransactionCounts(
        committed=answered.count(True),
        aborted=answered.count(False),
        unsure=len(asked) - len(answered),
        open_s=[decision.open_ms / 1000 for decision in decisions],
    )


def _reader(bootstrap: str, load: LoadOnCluster, group: str | None = None) -> Consumer:
    # A reader of committed records would take the last stable offset for the log end, even if it never moved again.
    isolation = {"isolation.level": "read_uncommitted"}
    return Consumer({**client_settings(bootstrap), "group.id": group or load.topic, **isolation})


def _ends(reader: Consumer, load: LoadOnCluster) -> dict[int, int]:
    """Return each partition's high watermark, after all producers have ended. Raises KafkaException."""
    places = (TopicPartition(load.topic, partition) for partition in range(load.partitions))
    return {place.partition: reader.get_watermark_offsets(place, timeout=ANSWER_S)[1] for place in places}


def _committed(reader: Consumer, load: LoadOnCluster) -> dict[int, int]:
    """Return the group's committed offsets by partition. Raises KafkaException."""
    places = [TopicPartition(load.topic, partition) for partition in range(load.partitions)]
    return {place.partition: place.offset for place in reader.committed(places, timeout=ANSWER_S) if place.offset >= 0}


def _topic_id(bootstrap: str, topic: str) -> str:
    """Return the topic id as the UUID that names its directory. Raises KafkaException."""
    admin = AdminClient(client_settings(bootstrap))
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
