"""A large synthetic history without anomalies, with every table filled."""

from dataclasses import replace

import numpy as np

from cordwood.chaos.history import (
    ACKS_ALL,
    SEQUENCE_BITS,
    UNKNOWN,
    Batches,
    Column,
    ConsumerAssignments,
    Elections,
    EpochEnds,
    History,
    Logs,
    Lookups,
    Outcome,
    Polls,
    ReplicaRecords,
    Sends,
    Watermarks,
)
from cordwood.chaos.history_builder import HistoryBuilder

OPEN_SHARE = 0.01
BATCH_RECORDS = 500


def healthy(sends: int, partitions: int, producers: int, consumers: int, brokers: int) -> History:
    """Return a history without anomalies: random partitions, each consumer reads all records, each broker holds all."""
    rng = np.random.default_rng(1)
    number = np.arange(sends, dtype=np.int64)
    producer, sequence = number % producers, number // producers
    partition = rng.integers(0, partitions, sends)
    offset = np.empty(sends, np.int64)
    for each in range(partitions):
        rows = np.flatnonzero(partition == each)
        offset[rows] = np.arange(len(rows))
    value = producer << SEQUENCE_BITS | sequence
    is_open = rng.random(sends) < OPEN_SHARE
    # Consumers alternate batch by batch, as they do while the log is written.
    batches = np.array_split(number, -(-sends // BATCH_RECORDS))
    read = np.concatenate([batch for batch in batches for _ in range(consumers)])
    reader = np.concatenate([np.full(len(batch), each) for batch in batches for each in range(consumers)])
    begin, log = np.arange(consumers * partitions), np.arange(brokers * partitions)
    held = np.tile(number, brokers)
    return replace(
        _asked(reader, partition[read], offset[read], read),
        sends=Sends(
            producer=producer,
            sequence=sequence,
            partition=partition,
            invoked_ns=number,
            ended_ns=number + 1,
            outcome=np.where(is_open, np.int64(Outcome.INFO), np.int64(Outcome.OK)),
            offset=np.where(is_open, UNKNOWN, offset),
            acks=np.full(sends, ACKS_ALL),
            timestamp=number // 1000,
            content=value,
            transaction=np.full(sends, UNKNOWN),
        ),
        polls=Polls(reader, partition[read], offset[read], value[read], read + 1, read // BATCH_RECORDS, value[read]),
        assignments=ConsumerAssignments(begin // partitions, begin % partitions, np.full_like(begin, -1)),
        logs=Logs(log // partitions, log % partitions, np.zeros_like(log), np.full_like(log, sends)),
        replicas=ReplicaRecords(np.repeat(np.arange(brokers), sends), partition[held], offset[held], value[held]),
    )


def _asked(reader: Column, partition: Column, offset: Column, read: Column) -> History:
    """Return the answers of one request of each kind per reader and batch."""
    reported = np.arange(0, len(reader), BATCH_RECORDS)
    client, partition, offset, asked_ns = reader[reported], partition[reported], offset[reported], read[reported]
    zeros = np.zeros(len(reported), np.int64)
    asked = {
        "client": client,
        "partition": partition,
        "invoked_ns": asked_ns,
        "at_ns": asked_ns + 1,
        "leader_epoch": zeros,
    }
    nothing = np.full(len(reported), UNKNOWN)
    partitions = np.arange(1 + int(partition.max(initial=0)))
    return replace(
        HistoryBuilder().build(),
        watermarks=Watermarks(
            high_watermark=offset + 1,
            log_start=zeros,
            last_stable=offset + 1,
            read_end=offset + 1,
            leaders_end=offset + 1,
            **asked,
        ),
        elections=Elections(partitions, np.zeros_like(partitions), np.full_like(partitions, -1)),
        lookups=Lookups(wanted=np.full(len(reported), len(read)), offset=nothing, timestamp=nothing, **asked),
        epoch_ends=EpochEnds(wanted=zeros, epoch=zeros, end=offset + 1, **asked),
        batches=Batches(partition, offset, offset + 1, zeros, asked_ns + 1),
    )
