"""A member of a consumer group or a share group in a dialog: heartbeats by hand, and epochs that follow the answers."""

import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from group_dialog import CONSUMER_HEARTBEAT, RETRY_S, SETTLED_S, Dialog, fields_text
from kio.schema.errors import ErrorCode

SHARE_HEARTBEAT, SHARE_FETCH, SHARE_ACKNOWLEDGE = 76, 78, 79
OFFSET_COMMIT, OFFSET_FETCH = 8, 9
REBALANCE = timedelta(seconds=60)
CALM_ROUNDS = 3

Partitions = Mapping[str, Sequence[int]]
"""Partitions by the short name of their topic."""
Acks = Mapping[str, Mapping[int, Sequence[tuple[int, int, Sequence[int]]]]]
"""By topic and partition: batches as first offset, last offset and types."""


class ConsumerMember:
    """A member of a consumer group. It owns what it was last assigned once it says so."""

    def __init__(self, dialog: Dialog, name: str, version: int = 1) -> None:
        self.name, self.member_id, self.epoch = name, name + dialog.suffix, 0
        self.assigned: Any = None
        self._dialog, self._version = dialog, version

    def heartbeat(self, said: str, **fields: Any) -> Any:
        """Send a heartbeat with these fields and, if nothing else is given, the member's id and epoch."""
        sent = {"group_id": self._dialog.group, "member_id": self.member_id, "member_epoch": self.epoch, **fields}
        sent.setdefault("rebalance_timeout", timedelta(milliseconds=-1))
        answer = self._dialog.ask(f"{self.name} {said}", CONSUMER_HEARTBEAT, self._version, **sent)
        if answer.error_code is ErrorCode.none:
            self.member_id, self.epoch = answer.member_id or self.member_id, answer.member_epoch
            if answer.assignment is not None:
                self.assigned = answer.assignment.topic_partitions
        return answer

    def join(self, *topics: str, **fields: Any) -> Any:
        """Join with epoch 0, subscribed to topics by their short names."""
        names = tuple(topic + self._dialog.suffix for topic in topics)
        sent = {"member_epoch": 0, "rebalance_timeout": REBALANCE, "topic_partitions": (), **fields}
        sent.setdefault("subscribed_topic_names", names)
        return self.heartbeat(f"joins {' '.join(topics)}{fields_text(fields)}", **sent)

    def beat(self, **fields: Any) -> Any:
        return self.heartbeat(f"sends a heartbeat{fields_text(fields)}", **fields)

    def own(self, partitions: Partitions, **fields: Any) -> Any:
        """Send a heartbeat that lists the owned partitions."""
        owned = [{"topic_id": self._dialog.id_of(topic), "partitions": found} for topic, found in partitions.items()]
        return self.heartbeat(f"owns {dict(partitions)}{fields_text(fields)}", topic_partitions=owned, **fields)

    def confirm(self) -> Any:
        """Send a heartbeat that owns what was assigned last."""
        owned = [{"topic_id": item.topic_id, "partitions": item.partitions} for item in self.assigned or ()]
        return self.heartbeat("owns its assignment", topic_partitions=owned)

    def leave(self, epoch: int = -1) -> Any:
        return self.heartbeat(f"leaves with {epoch}", member_epoch=epoch)

    def commit(self, topic: str, offset: int, version: int = 9, **fields: Any) -> Any:
        partition = {"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}
        sent = {"group_id": self._dialog.group, "member_id": self.member_id, **fields}
        key = "generation_id_or_member_epoch"
        sent.setdefault(key, self.epoch)
        shown = {name: value for name, value in fields.items() if name != key or value <= 0}
        return self._dialog.ask(
            f"{self.name} commits {offset}{fields_text(shown)}",
            OFFSET_COMMIT,
            version,
            topics=({"name": topic + self._dialog.suffix, "partitions": (partition,)},),
            **sent,
        )

    def fetch_offsets(self, topic: str, said: str = "", **fields: Any) -> Any:
        group = {
            "group_id": self._dialog.group,
            "member_id": self.member_id,
            "member_epoch": self.epoch,
            "topics": ({"name": topic + self._dialog.suffix, "partition_indexes": (0,)},),
            **fields,
        }
        return self._dialog.ask(f"{self.name} fetches offsets {said}", OFFSET_FETCH, 9, groups=(group,))


class ShareMember:
    """A member of a share group, and its share session on a connection of its own."""

    def __init__(self, dialog: Dialog, name: str) -> None:
        self.name, self.member_id, self.epoch, self.session_epoch = name, name + dialog.suffix, 0, 0
        self.assigned: Any = None
        self._dialog = dialog
        self.connection = dialog.new_connection()

    def heartbeat(self, said: str, **fields: Any) -> Any:
        sent = {"group_id": self._dialog.group, "member_id": self.member_id, "member_epoch": self.epoch, **fields}
        answer = self._dialog.ask(f"{self.name} {said}", SHARE_HEARTBEAT, 1, **sent)
        if answer.error_code is ErrorCode.none:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self.assigned = answer.assignment.topic_partitions
        return answer

    def join(self, *topics: str, **fields: Any) -> Any:
        names = tuple(topic + self._dialog.suffix for topic in topics)
        sent = {"member_epoch": 0, "subscribed_topic_names": names, **fields}
        return self.heartbeat(f"joins {' '.join(topics)}{fields_text(fields)}", **sent)

    def join_until_assigned(self, *topics: str) -> Any:
        """Join, and send heartbeats until partitions are assigned. Only the last answer is noted."""
        return self._dialog.eventually(
            f"{self.name} joins {' '.join(topics)} and is assigned",
            lambda: self.beat() if self.epoch else self.join(*topics),
            lambda answer: bool(answer.assignment and answer.assignment.topic_partitions),
        )

    def beat(self, **fields: Any) -> Any:
        return self.heartbeat(f"sends a heartbeat{fields_text(fields)}", **fields)

    def confirm(self) -> Any:
        return self.beat()

    def leave(self, epoch: int = -1) -> Any:
        return self.heartbeat(f"leaves with {epoch}", member_epoch=epoch)

    def fetch(self, partitions: Partitions, acks: Acks | None = None, wait_ms: int = 3000, **fields: Any) -> Any:
        """Send a ShareFetch with these partitions and acknowledgements, and the session's next epoch."""
        shown = {name: value for name, value in fields.items() if name != "forgotten_topics_data"}
        title = f"{self.name} fetches {dict(partitions)}{_acks_text(acks)}{fields_text(shown)}"
        sent = {
            "group_id": self._dialog.group,
            "member_id": self.member_id,
            "share_session_epoch": self.session_epoch,
            "max_wait": timedelta(milliseconds=wait_ms),
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "max_records": 500,
            "batch_size": 500,
            "topics": self._topics(partitions, acks or {}),
            **fields,
        }
        return self._advance(self._dialog.ask(title, SHARE_FETCH, 2, self.connection, **sent), sent)

    def fetch_until_acquired(self, partitions: Partitions, **fields: Any) -> Any:
        """Send ShareFetch until records come; a broker may first have to read the group's state."""
        return self._dialog.eventually(
            f"{self.name} fetches {dict(partitions)}{fields_text(fields)} until records come",
            lambda: self.fetch(partitions if self.session_epoch == 0 else {}, wait_ms=500, **fields),
            lambda answer: any(found.acquired_records for topic in answer.responses for found in topic.partitions),
        )

    def acknowledge(self, acks: Acks, **fields: Any) -> Any:
        title = f"{self.name} acknowledges{_acks_text(acks)}{fields_text(fields)}"
        sent = {
            "group_id": self._dialog.group,
            "member_id": self.member_id,
            "share_session_epoch": self.session_epoch,
            "topics": self._topics({}, acks),
            **fields,
        }
        return self._advance(self._dialog.ask(title, SHARE_ACKNOWLEDGE, 2, self.connection, **sent), sent)

    def disconnect(self) -> None:
        """Close the connection that the session is on."""
        self.connection.close()

    def _advance(self, answer: Any, sent: Mapping[str, Any]) -> Any:
        if answer.error_code is ErrorCode.none:
            self.session_epoch = 0 if sent["share_session_epoch"] == -1 else sent["share_session_epoch"] + 1
        return answer

    def _topics(self, partitions: Partitions, acks: Acks) -> list[dict[str, Any]]:
        topics = []
        for topic in sorted({*partitions, *acks}):
            numbers = sorted({*partitions.get(topic, ()), *acks.get(topic, {})})
            found = [
                {"partition_index": number, "acknowledgement_batches": _batches(acks.get(topic, {}).get(number, ()))}
                for number in numbers
            ]
            topics.append({"topic_id": self._dialog.id_of(topic), "partitions": found})
        return topics


def settle(dialog: Dialog, *members: ConsumerMember | ShareMember) -> None:
    """Send heartbeats of all members until nothing changes any more, and note what each has then."""
    deadline, calm, before = time.monotonic() + SETTLED_S, 0, None
    mark = dialog.mark()
    answers: list[Any] = []
    while calm < CALM_ROUNDS and time.monotonic() < deadline:
        answers = [member.confirm() for member in members]
        now = [(member.epoch, member.assigned) for member in members]
        calm = calm + 1 if now == before and len({member.epoch for member in members}) == 1 else 0
        before = now
        time.sleep(RETRY_S)
    dialog.forget(mark)
    epochs = sorted({member.epoch for member in members})
    assert len(epochs) == 1, f"the members have not settled: {epochs}"
    for member, answer in zip(members, answers, strict=True):
        dialog.note(f"{member.name} has settled", answer)
        dialog.answers.append((f"{member.name} has", dialog._plain(tuple(member.assigned or ()))))


def _batches(batches: Sequence[tuple[int, int, Sequence[int]]]) -> list[dict[str, Any]]:
    return [
        {"first_offset": first, "last_offset": last, "acknowledge_types": tuple(types)}
        for first, last, types in batches
    ]


def _acks_text(acks: Acks | None) -> str:
    return "" if not acks else f" with acks { ({topic: dict(found) for topic, found in acks.items()}) }"
