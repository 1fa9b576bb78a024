"""A dialog with one broker about groups: requests of members, and the answers in a form in which brokers compare.

A script plays a dialog. Names have a suffix of the run, which answers lose again; epochs become e1, e2 … in the order
in which they appear; topic ids become names. Times, addresses and the text of errors are left out.
"""

import dataclasses
import inspect
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from enum import Enum
from secrets import token_hex
from types import ModuleType
from typing import Any, NamedTuple
from uuid import UUID

from admin_fixture import message_of
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions, NewTopic
from kio.index import load_request_schema
from kio.schema.errors import ErrorCode

from cordwood.client.blocking import BlockingConnection, connect

ANSWER_S = 30.0
SETTLED_S = 15.0
RETRY_S = 0.05
FIND_COORDINATOR, METADATA, CONSUMER_HEARTBEAT, DELETE_GROUPS = 10, 3, 68, 42
UNSETTLED = (
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.coordinator_not_available,
    ErrorCode.not_coordinator,
)
"""A broker that has just started may answer these to anything."""
LEFT_OUT = frozenset(
    {
        "throttle_time",
        "error_message",
        "acknowledge_error_message",
        "acknowledgement_error_message",
        "current_leader",
        "leader_epoch",
        "committed_leader_epoch",
        "node_endpoints",
        "client_id",
        "client_host",
        "authorized_operations",
        "topic_id",
        "records",
    }
)
EPOCHS = frozenset({"member_epoch", "group_epoch", "assignment_epoch", "generation_id"})


class Mark(NamedTuple):
    """A place in the notes of a dialog."""

    answers: int
    epochs: dict[int, str]
    generated: dict[str, str]


Script = Callable[["Dialog"], None]
Answers = list[tuple[str, Any]]


class Dialog:
    """One run of a script: its topics, group and members, and what was asked and answered."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.suffix = f"-{token_hex(4)}"
        self.group = f"workers{self.suffix}"
        self.answers: Answers = []
        self.shows_partitions = True
        """False where the assignor may choose any partitions: only their number is compared."""
        self.connection = connect(bootstrap, ANSWER_S)
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        self._topics: dict[UUID, str] = {}
        self._epochs: dict[int, str] = {}
        self._generated: dict[str, str] = {}
        self._connections = [self.connection]

    def close(self) -> None:
        for connection in self._connections:
            connection.close()

    def new_connection(self) -> BlockingConnection:
        connection = connect(self.bootstrap, ANSWER_S)
        self._connections.append(connection)
        return connection

    # What is there before and beside the members.

    def topic(self, name: str, partitions: int = 1, *, is_awaited: bool = True) -> str:
        """Create a topic and return its full name, once the coordinator knows it if `is_awaited`."""
        full = name + self.suffix
        self._admin.create_topics([NewTopic(full, partitions, 1)])[full].result(ANSWER_S)
        deadline = time.monotonic() + ANSWER_S
        while time.monotonic() < deadline:
            known = self.ask_quietly(METADATA, 12, topics=({"topic_id": None, "name": full},)).topics[0]
            leaders = [partition.leader_id for partition in known.partitions if partition.leader_id >= 0]
            if known.error_code is ErrorCode.none and len(leaders) == partitions:
                self._topics[known.topic_id] = name
                if is_awaited:
                    self._await_coordinator(full, partitions)
                return full
            time.sleep(RETRY_S)
        raise AssertionError(f"no leaders of {full}")

    def _await_coordinator(self, topic: str, partitions: int) -> None:
        """Have the coordinator assign all partitions of a topic to a member of the group; delete the group."""
        member_id, epoch, deadline = f"probe{self.suffix}", 0, time.monotonic() + ANSWER_S
        while time.monotonic() < deadline:
            answer = self._heartbeat(member_id, epoch, topic)
            epoch = answer.member_epoch
            assigned = answer.assignment.topic_partitions if answer.assignment else ()
            if sum(len(found.partitions) for found in assigned) == partitions:
                self._heartbeat(member_id, -1, topic)
                self.ask_quietly(DELETE_GROUPS, 2, groups_names=(self.group,))
                return
            time.sleep(RETRY_S)
        raise AssertionError(f"the coordinator does not know {topic}")

    def _heartbeat(self, member_id: str, epoch: int, topic: str) -> Any:
        return self.ask_quietly(
            CONSUMER_HEARTBEAT,
            1,
            group_id=self.group,
            member_id=member_id,
            member_epoch=epoch,
            rebalance_timeout=timedelta(seconds=60),
            subscribed_topic_names=(topic,),
            topic_partitions=(),
        )

    def id_of(self, name: str) -> UUID:
        """Return the id of a topic by its short name."""
        return next(topic_id for topic_id, known in self._topics.items() if known == name)

    def delete_topic(self, name: str) -> None:
        self._admin.delete_topics([name + self.suffix])[name + self.suffix].result(ANSWER_S)

    def add_partitions(self, name: str, total: int) -> None:
        full = name + self.suffix
        self._admin.create_partitions([NewPartitions(full, total)])[full].result(ANSWER_S)

    def produce(self, name: str, count: int, partition: int = 0) -> None:
        """Append one batch of records."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 200})
        for number in range(count):
            producer.produce(name + self.suffix, b"%d" % number, partition=partition)
        assert producer.flush(ANSWER_S) == 0

    def produce_in_transaction(self, name: str, count: int, *, commits: bool) -> None:
        """Append records to partition 0 in a transaction, and end it."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 200, "transactional.id": token_hex(4)})
        producer.init_transactions(ANSWER_S)
        producer.begin_transaction()
        for number in range(count):
            producer.produce(name + self.suffix, b"%d" % number, partition=0)
        assert producer.flush(ANSWER_S) == 0
        (producer.commit_transaction if commits else producer.abort_transaction)(ANSWER_S)

    def configure(self, **configs: str) -> None:
        """Set configs of the group, with `_` for `.` in their keys."""
        entries = [
            ConfigEntry(key.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
            for key, value in configs.items()
        ]
        resource = ConfigResource(ConfigResource.Type.GROUP, self.group, incremental_configs=entries)
        self._admin.incremental_alter_configs([resource])[resource].result(ANSWER_S)

    # Requests.

    def ask_quietly(self, api: int, version: int, via: BlockingConnection | None = None, **fields: Any) -> Any:
        """Return the response to a request that is no part of the comparison."""
        return (via or self.connection).ask(message_of(load_request_schema(api, version), fields))

    def ask(self, title: str, api: int, version: int, via: BlockingConnection | None = None, **fields: Any) -> Any:
        """Return the response, and note it under a title; ask again while the coordinator is not there yet."""
        deadline = time.monotonic() + ANSWER_S
        while True:
            response = self.ask_quietly(api, version, via, **fields)
            if not _codes(response) & set(UNSETTLED) or time.monotonic() > deadline:
                break
            time.sleep(RETRY_S)
        self.note(title, response)
        return response

    def note(self, title: str, response: Any) -> None:
        self.answers.append((title.replace(self.suffix, ""), self._plain(response)))

    def find_coordinator(self) -> None:
        """Wait until the group's coordinator serves it."""
        deadline = time.monotonic() + ANSWER_S
        while time.monotonic() < deadline:
            found = self.ask_quietly(FIND_COORDINATOR, 4, key_type=0, coordinator_keys=(self.group,))
            if found.coordinators[0].error_code is ErrorCode.none:
                return
            time.sleep(RETRY_S)
        raise AssertionError("no coordinator")

    def eventually(
        self, title: str, ask: Callable[[], Any], is_done: Callable[[Any], bool], wait_s: float = SETTLED_S
    ) -> Any:
        """Ask until the response is as expected or the time is over, and note only the last one."""
        deadline = time.monotonic() + wait_s
        known = self.mark()
        while True:
            response = ask()
            self.forget(known)
            if is_done(response) or time.monotonic() > deadline:
                self.note(title, response)
                return response
            time.sleep(RETRY_S)

    @contextmanager
    def unnoted(self) -> Iterator[None]:
        """Take back what is noted within: it may depend on time."""
        mark = self.mark()
        yield
        self.forget(mark)

    def mark(self) -> "Mark":
        """Return what `forget` takes."""
        return Mark(len(self.answers), dict(self._epochs), dict(self._generated))

    def forget(self, mark: "Mark") -> None:
        """Take back all notes since a mark."""
        del self.answers[mark.answers :]
        self._epochs, self._generated = dict(mark.epochs), dict(mark.generated)

    # Answers in the form that is compared.

    def _plain(self, value: Any, name: str = "") -> Any:
        if dataclasses.is_dataclass(value):
            return self._plain_message(value)
        if isinstance(value, Enum):
            return value.name
        if isinstance(value, timedelta):
            return value // timedelta(milliseconds=1)
        if isinstance(value, bytes):
            return f"{len(value)} bytes"
        if isinstance(value, str):
            return self._plain_text(value, name)
        if name in EPOCHS and isinstance(value, int) and value > 0:
            return self._epochs.setdefault(value, f"e{len(self._epochs) + 1}")
        if name == "partitions" and not self.shows_partitions and all(isinstance(item, int) for item in value):
            return len(value)
        if name == "acquired_records":
            return merged(value)
        if isinstance(value, tuple):
            return sorted((self._plain(item, name) for item in value), key=lambda item: json.dumps(item))
        return value

    def _plain_message(self, message: Any) -> dict[str, Any]:
        plain: dict[str, Any] = {}
        for field in dataclasses.fields(message):
            value = getattr(message, field.name)
            if field.name == "topic_id" and not hasattr(message, "topic_name") and value is not None:
                plain["topic"] = self._topics.get(value, "?")
            if field.name not in LEFT_OUT and value is not None:
                plain[field.name] = self._plain(value, field.name)
        return plain

    def _plain_text(self, value: str, name: str) -> str:
        if name in ("member_id", "leader") and value and self.suffix not in value:
            return self._generated.setdefault(value, f"generated-{len(self._generated) + 1}")
        return value.replace(self.suffix, "")


def merged(acquired: Sequence[Any]) -> list[list[int]]:
    """Return acquired records as first offset, last offset and delivery count; how they are cut is not compared."""
    ranges: list[list[int]] = []
    for found in sorted(acquired, key=lambda found: found.first_offset):
        if ranges and ranges[-1][1:] == [found.first_offset - 1, found.delivery_count]:
            ranges[-1][1] = found.last_offset
        else:
            ranges.append([found.first_offset, found.last_offset, found.delivery_count])
    return ranges


def scripts_of(*modules: ModuleType) -> dict[str, Script]:
    """Return the public functions of modules of scripts by name."""
    return {
        name: function
        for module in modules
        for name, function in inspect.getmembers(module, inspect.isfunction)
        if function.__module__ == module.__name__ and not name.startswith("_")
    }


def play(script: Script, bootstrap: str) -> Answers:
    """Play a script against the broker at an address, and return what was asked and answered."""
    dialog = Dialog(bootstrap)
    try:
        dialog.find_coordinator()
        script(dialog)
    finally:
        dialog.close()
    return dialog.answers


def differences(expected: Sequence[Sequence[Any]], found: Sequence[Sequence[Any]]) -> list[str]:
    """Return a sentence for each answer that differs."""
    said = []
    pairs = zip(without_repeats(expected), without_repeats(found), strict=False)
    for number, ((title, answer), (other_title, other)) in enumerate(pairs):
        if title != other_title:
            said.append(f"{number}: asked {other_title} where {title} was asked")
        elif other != answer:
            said.append(f"{number}: {title}: {json.dumps(other)}\n      expected {json.dumps(answer)}")
    if len(expected) != len(found):
        said.append(f"{len(found)} answers where {len(expected)} are expected")
    return said


def without_repeats(answers: Sequence[Sequence[Any]]) -> Answers:
    """Leave out an assignment that the member was sent before: a broker may repeat it until the member confirms it."""
    assigned: dict[str, Any] = {}
    shown: Answers = []
    for title, answer in json.loads(json.dumps(answers)):
        if isinstance(answer, dict) and "assignment" in answer:
            repeated = assigned.get(answer["member_id"]) == answer["assignment"]
            assigned[answer["member_id"]] = answer["assignment"]
            if repeated:
                del answer["assignment"]
        shown.append((title, answer))
    return shown


def _codes(response: Any) -> set[ErrorCode]:
    """Return the error codes at the top of a response, and of the groups in it."""
    inner: Sequence[Any] = getattr(response, "groups", ())
    found: set[ErrorCode] = {getattr(item, "error_code", ErrorCode.none) for item in (response, *inner)}
    return found


def fields_text(fields: Mapping[str, Any]) -> str:
    """Return the fields of a request for its title."""
    return "".join(f" {name}={value}" for name, value in fields.items())
