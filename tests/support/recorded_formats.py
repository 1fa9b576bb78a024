"""The formats of a release as recorded bytes, which later releases must read. Run by the release's own Python:

    python tests/support/recorded_formats.py > tests/upgrade/formats-X.Y.Z.json

An item is its bytes in hexadecimal, and what the release reads in them: the text of each field.
"""

import json
import random
import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from enum import IntEnum
from itertools import count
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints
from uuid import UUID

from log_fixture import DIRECTORY, LogFixture

from cordwood.cluster.kafka.on_behalf import encode_on_behalf
from cordwood.cluster.metadata import snapshot
from cordwood.cluster.metadata.acls import Acl, AclOperation, AclResource, Pattern, Permission, ResourcePattern
from cordwood.cluster.metadata.commands import BrokerId, Command, Endpoint
from cordwood.cluster.metadata.credentials import DelegationToken, ScramCredential, ScramMechanism
from cordwood.cluster.metadata.cuts import Cut
from cordwood.cluster.metadata.image import BrokerImage, Image, PartitionImage, TopicImage
from cordwood.cluster.metadata.raft import messages
from cordwood.cluster.metadata.raft.handshake import NONCE_BYTES, Handshake, Membership, PeerRole
from cordwood.cluster.security.principal import Identity, Principal
from cordwood.replication import frames
from cordwood.storage import state

try:
    from cordwood.cluster.metadata.command_codec import encode
except ImportError:
    from cordwood.cluster.metadata.commands import encode  # type: ignore[attr-defined,no-redef]

ACL = Acl(
    ResourcePattern(AclResource.TOPIC, "flights", Pattern.PREFIXED),
    "User:alice",
    "10.0.0.1",
    AclOperation.READ,
    Permission.DENY,
)


class Samples:
    """Values of declared types: a different one each time, the same in each run."""

    def __init__(self) -> None:
        self._numbers = count(1)

    def of(self, annotation: Any) -> Any:
        number = next(self._numbers)
        plain = {int: number, float: number / 2, str: f"text {number}", bytes: b"%d" % number, bool: True}
        if annotation is Acl:
            return ACL
        if annotation in plain:
            return plain[annotation]
        if annotation is UUID:
            return UUID(int=number)
        if annotation is BrokerId:
            return BrokerId(number)
        if get_origin(annotation) in (Union, UnionType):
            return self.of(next(one for one in get_args(annotation) if one is not type(None)))
        if get_origin(annotation) is tuple:
            rows = get_args(annotation)
            if rows[-1] is Ellipsis:
                return (self.of(rows[0]), self.of(rows[0]))
            return tuple(self.of(row) for row in rows)
        if issubclass(annotation, IntEnum):
            return list(annotation)[-1]
        assert is_dataclass(annotation)
        return self.of_class(annotation)

    def of_class(self, kind: Any, **known: Any) -> Any:
        hints = get_type_hints(kind)
        return kind(**{field.name: self.of(hints[field.name]) for field in fields(kind)} | known)


def item(encoded: bytes, decoded: Any) -> dict[str, Any]:
    names = decoded._fields if hasattr(decoded, "_fields") else [field.name for field in fields(decoded)]
    return {"hex": encoded.hex(), "fields": {name: repr(getattr(decoded, name)) for name in names}}


def commands() -> Iterator[tuple[str, Any]]:
    for kind in get_args(Command):
        command = Samples().of_class(kind)
        yield kind.__name__, item(encode(command), command)


def of_the_quorum() -> Iterator[tuple[str, Any]]:
    """Yield the messages between voters and observers, and a hello."""
    for kind in get_args(messages.Message):
        message = Samples().of_class(kind)
        if hasattr(message, "entries"):
            message = kind(**{**{field.name: getattr(message, field.name) for field in fields(kind)}, "entries": ROWS})
        yield kind.__name__, item(messages.encode(message), message)


ROWS = ((b"entry", 7, 2), (b"next", 8, 3))


def hello() -> str:
    """Return the hello of a voter that dials broker 1."""
    sent: list[bytes] = []
    me = Membership(BrokerId(2), PeerRole.VOTER, "cluster", (BrokerId(1), BrokerId(2)), b"")
    Handshake(me, BrokerId(1), b"n" * NONCE_BYTES, sent.append).begin()
    return sent[0].hex()


def of_replication() -> dict[str, str]:
    """Return the frames of replication, with their lengths."""
    opened = frames.Open(1, UUID(int=2), 3, "cluster")
    rows = [
        frames.PushRow(1, frames.PushKind.DATA, 5, 2, 4),
        frames.PushRow(2, frames.PushKind.DIFFERS, 6, 3),
        frames.PushRow(3, frames.PushKind.TOO_OLD, 7, 4),
        frames.PushRow(4, frames.PushKind.REFUSED, 0, 0),
        frames.PushRow(5, frames.PushKind.DATA_WITH_GAPS, 8, 5, 2),
    ]
    follow = [frames.FollowRequest(1, UUID(int=2), 3, 4, 5, 6, 7, 8)]
    identity = Identity(Principal("User", "alice"), "10.0.0.1", "SCRAM-SHA-512", True)
    return {
        "open": frames.encode_open(opened).hex(),
        "read": frames.encode_read(opened, frames.ReadRequest(UUID(int=4), *range(1, READ_NUMBERS + 1))).hex(),
        "follow": frames.encode_follow(follow).hex(),
        "leave": frames.encode_leave([1, 2]).hex(),
        "reports": frames.encode_reports([frames.FlushReport(1, 2, 3)]).hex(),
        "starts": frames.encode_starts([frames.Start(1, 2)]).hex(),
        "suspect": frames.encode_suspect(frames.Suspect(1, 2)).hex(),
        "push": (frames.encode_push(rows, 6) + b"abcdef").hex(),
        "on behalf": encode_on_behalf(identity).hex(),
    }


READ_NUMBERS = len(frames.ReadRequest._fields) - 1


def images() -> Iterator[tuple[str, str]]:
    """Yield an image of each version that the release writes, by the content that needs it."""
    one, two = BrokerId(1), BrokerId(2)
    partition = PartitionImage((one, two), (one,), one, 3, 4, (two,), (two,), (one,))
    topic = TopicImage(UUID(int=5), "flights", (partition, partition), {"retention.ms": "5"})
    listeners = (Endpoint("PLAINTEXT", "host", 9092),)
    plain = {
        "index": 42,
        "cluster_id": "cluster",
        "brokers": {
            one: BrokerImage(one, UUID(int=9), 7, listeners, "rack", ("a", "b"), False, True, 2),
            two: BrokerImage(two, UUID(int=10), 8, ()),
        },
        "topics_by_name": {"flights": topic},
        "topics_by_id": {topic.id: topic},
        "broker_configs": {"": {"flush.policy": "os"}},
        "next_producer_id": 2000,
        "acls": {UUID(int=7): ACL},
        "recent": Image().recent.having(b"t" * 8, 41),
    }
    users = {
        "scram_credentials": {("alice", ScramMechanism.SCRAM_SHA_512): ScramCredential(b"a", b"b", b"c", 4096)},
        "delegation_tokens": {"id": DelegationToken("id", "User:alice", "User:bob", ("User:carol",), 1, 3, 2)},
    }
    archive = {"cuts": {"monday": Samples().of_class(Cut)}}
    for content in (plain, plain | users, plain | users | archive):
        encoded = snapshot.encode(Image(**content))
        yield str(encoded[1]), encoded.hex()


def checkpoints() -> Iterator[tuple[str, Any]]:
    """Yield the files `recovery` and `leader-epochs` of a log in each version that the release writes."""
    log = LogFixture()
    log.append("a", "b").send(0, "v")
    log.leader_epoch = 3
    log.append(*(f"x{number}" for number in range(12))).flush()
    log.checkpoint()
    yield from _written(log)
    log.send(0, "t", producer=8, transactional=True)
    log.mark(commit=False, producer=8)
    log.send(0, "u", producer=9, transactional=True)
    log.flush().checkpoint()
    yield from _written(log)
    state.write_checkpoint(log.disk, DIRECTORY, log.log.state()._replace(clean_end=4))
    yield from _written(log)


def _written(log: LogFixture) -> Iterator[tuple[str, Any]]:
    files = {}
    for name in (state.RECOVERY_FILE, state.EPOCHS_FILE):
        file = log.disk.open(f"{DIRECTORY}/{name}")
        files[name] = file.pread(file.size(), 0)
    version = int.from_bytes(files[state.RECOVERY_FILE][4:6], "little")
    yield str(version), {**{name: data.hex() for name, data in files.items()}, "read": content(log.disk)}


def content(disk: Any) -> dict[str, str]:
    """Return what a release reads from the checkpoint of a log."""
    found = state.load(disk, DIRECTORY)
    names = ("log_start", "recovery_point", "segments", "active", "local_start", "clean_end", "damage")
    producers = found.producers.snapshot(found.recovery_point).encode().hex()
    texts = {name: repr(getattr(found, name)) for name in names}
    return {**texts, "epochs": found.epochs.encode().hex(), "producers": producers}


if __name__ == "__main__":
    random.seed(1)
    recorded = {
        "commands": dict(commands()),
        "quorum": dict(of_the_quorum()),
        "hello": hello(),
        "replication": of_replication(),
        "images": dict(images()),
        "checkpoints": dict(checkpoints()),
    }
    json.dump(recorded, sys.stdout, indent=1)
    sys.stdout.write("\n")
