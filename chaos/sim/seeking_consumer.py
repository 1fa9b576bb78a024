"""Simulated consumers that seek, restart, and fetch all partitions in fetch sessions (KIP-227)."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from kio.schema.errors import ErrorCode

from cordwood.chaos.history import UNKNOWN
from cordwood.chaos.history_builder import HistoryBuilder
from cordwood.chaos.sim.consumer import (
    EARLIEST,
    FETCH_BYTES,
    LATEST,
    MAX_TIMESTAMP,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    Reader,
)
from cordwood.chaos.sim.host import BEGAN_MS
from cordwood.chaos.sim.kafka import Address, SimulatedClient, duration, message, part
from cordwood.chaos.sim.producer import Alarm
from cordwood.cluster.kafka.api_keys import ApiKey

MAX_WAIT_S = 0.3
"""The maximum wait of each fetch, because the leaders are asked in turn."""
POLLS = range(3, 40)
"""The number of polls between two seeks."""
RESTART_SHARE = 0.3
PAUSE_S = 1.0
INITIAL, NO_SESSION = 0, 0
LOST = frozenset({ErrorCode.fetch_session_id_not_found, ErrorCode.invalid_fetch_session_epoch})


@dataclass(slots=True)
class _Session:
    """One broker's fetch session with this consumer."""

    id: int = NO_SESSION
    epoch: int = INITIAL
    known: dict[int, object] = field(default_factory=dict)
    """By partition: the row that the broker has cached."""


class SeekingConsumer:
    """One consumer of all partitions, with one fetch session per leader."""

    def __init__(
        self, client: SimulatedClient, number: int, partitions: int, history: HistoryBuilder, alarm: Alarm
    ) -> None:
        self._client = client
        self._readers = [Reader(client, number, partition, history, alarm) for partition in range(partitions)]
        self._sessions: dict[Address, _Session] = {}

    async def run(self) -> None:
        """Run forever."""
        client, rng = self._client, self._client.rng
        while True:
            for reader in self._readers:
                await self._seek(reader)
            for _ in range(rng.choice(POLLS)):
                if not await self._poll():
                    await client.refresh_patiently()
            if rng.random() < RESTART_SHARE:
                client.did("consumer-restart")
                client.hang_up()
                self._sessions.clear()
                await asyncio.sleep(rng.uniform(0.0, PAUSE_S))

    async def _seek(self, reader: Reader) -> None:
        """Seek to the start, the end, a time, or the record with the latest timestamp, once a leader answers."""
        client, rng = self._client, self._client.rng
        now_ms = BEGAN_MS + client.now_ns // 1_000_000
        name, timestamp = rng.choice(
            (
                ("earliest", EARLIEST),
                ("latest", LATEST),
                ("max-timestamp", MAX_TIMESTAMP),
                ("time", rng.randint(BEGAN_MS, now_ms)),
            )
        )
        isolation = rng.choice((READ_UNCOMMITTED, READ_COMMITTED))
        while (offset := await reader.offset_at(timestamp, isolation)) is None:
            await client.refresh_patiently()
        client.did(f"list-offsets-by-{name}")
        client.did("list-offsets-read-committed" if isolation else "list-offsets-read-uncommitted")
        if offset != UNKNOWN:
            client.did("seek")
            reader.begin(offset)

    async def _poll(self) -> bool:
        """Fetch once from each leader. Return False if one did not answer or does not lead."""
        by_leader: dict[Address, list[Reader]] = {}
        for reader in self._readers:
            address = self._client.leader(reader.partition)
            if address is not None and await reader.is_valid():
                by_leader.setdefault(address, []).append(reader)
        are_well = [await self._fetch(address, readers) for address, readers in by_leader.items()]
        return bool(are_well) and all(are_well)

    async def _fetch(self, address: Address, readers: Sequence[Reader]) -> bool:
        """Send an incremental fetch: only changed partitions are requested, and only new data is returned."""
        session = self._sessions.setdefault(address, _Session())
        asked = {reader.partition: reader.asked() for reader in readers}
        request = _request(session, {reader.partition: reader.row() for reader in readers}, self._client.topic)
        try:
            answer = await self._client.ask(address, request)
        except OSError:
            self._sessions[address] = _Session()
            return False
        if answer.error_code is not ErrorCode.none:
            if answer.error_code in LOST:
                self._client.did("fetch-session-lost")
            self._sessions[address] = _Session()
            return False
        if session.epoch != INITIAL:
            self._client.did("fetch-session")
        session.id = int(answer.session_id)
        session.epoch = INITIAL if session.id == NO_SESSION else session.epoch + 1
        by_partition = {reader.partition: reader for reader in readers}
        reported = [row for topic in answer.responses for row in topic.partitions]
        are_well = [
            await by_partition[row.partition_index].fetched(row, asked[row.partition_index]) for row in reported
        ]
        return all(are_well)


def _request(session: _Session, rows: dict[int, object], topic: str) -> Any:
    """Return the changes relative to the session, or a full fetch request for a new session."""
    is_new = session.epoch == INITIAL
    changed = [row for partition, row in rows.items() if is_new or session.known.get(partition) != row]
    gone = [] if is_new else [partition for partition in session.known if partition not in rows]
    session.known = rows
    return message(
        ApiKey.FETCH,
        max_wait=duration(MAX_WAIT_S),
        min_bytes=1,
        max_bytes=FETCH_BYTES,
        session_id=session.id,
        session_epoch=session.epoch,
        topics=(part(ApiKey.FETCH, "FetchTopic", topic=topic, partitions=tuple(changed)),) if changed else (),
        forgotten_topics_data=(part(ApiKey.FETCH, "ForgottenTopic", topic=topic, partitions=tuple(gone)),)
        if gone
        else (),
        rack_id="",
    )
