"""Formats of earlier releases, recorded as bytes: each is read, and at level 1 written alike."""

import json
import random
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from recorded_formats import content

from cordwood.chaos.sim.disk import SimulatedDisk
from cordwood.cluster.kafka.on_behalf import decode_on_behalf, encode_on_behalf
from cordwood.cluster.metadata import command_codec, snapshot
from cordwood.cluster.metadata.commands import BrokerId, level_of
from cordwood.cluster.metadata.features import FIRST_LEVEL
from cordwood.cluster.metadata.image import PartitionImage
from cordwood.cluster.metadata.raft import messages
from cordwood.cluster.metadata.raft.handshake import NONCE_BYTES, Handshake, Membership, Peer, PeerRole
from cordwood.replication import frames
from cordwood.storage import state

HERE = Path(__file__).parent
ONE, TWO = BrokerId(1), BrokerId(2)
DIRECTORY = "/data/00000000-0000-0000-0000-000000000001-0"
LENGTH_BYTES = 4


def recorded(release: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((HERE / f"formats-{release}.json").read_text())
    return content


FIRST, EARLY = recorded("0.1.0"), recorded("early")


@pytest.mark.parametrize("name", FIRST["commands"])
def test_a_command_of_a_journal_is_read(name: str) -> None:
    item = FIRST["commands"][name]
    command = command_codec.decode(bytes.fromhex(item["hex"]))
    assert type(command).__name__ == name
    for field in fields(command):
        value = getattr(command, field.name)
        if field.name in item["fields"]:
            assert repr(value) == item["fields"][field.name]
        else:
            assert field.default is not MISSING
            assert value == field.default
    assert level_of(command) == FIRST_LEVEL


def test_a_journal_of_the_first_release_has_these_commands() -> None:
    kinds = {bytes.fromhex(item["hex"])[1] for item in FIRST["commands"].values()}
    assert kinds == set(range(1, 28))


@pytest.mark.parametrize("name", FIRST["quorum"])
def test_a_message_between_voters_is_read_and_written_alike(name: str) -> None:
    item = FIRST["quorum"][name]
    message = messages.decode(bytes.fromhex(item["hex"]))
    assert type(message).__name__ == name
    assert {field.name: repr(getattr(message, field.name)) for field in fields(message)} == item["fields"]
    assert messages.encode(message).hex() == item["hex"]


def test_a_hello_is_answered_at_the_first_level() -> None:
    me = Membership(ONE, PeerRole.VOTER, "cluster", (ONE, TWO), b"")
    answers: list[bytes] = []
    handshake = Handshake(me, None, b"n" * NONCE_BYTES, answers.append)
    assert handshake.receive(bytes.fromhex(FIRST["hello"])) is None
    assert len(answers) == 2
    assert handshake.receive(answers[1]) == Peer(TWO, PeerRole.VOTER)


def frames_again(name: str, frame: memoryview) -> bytes:
    """Decode a frame of replication, and encode what it says."""
    match name:
        case "open":
            return frames.encode_open(frames.decode_open(frame))
        case "read":
            return frames.encode_read(*frames.decode_read(frame))
        case "follow":
            return frames.encode_follow(frames.decode_follow(frame))
        case "leave":
            return frames.encode_leave(frames.decode_leave(frame))
        case "reports":
            return frames.encode_reports(frames.decode_reports(frame))
        case "starts":
            return frames.encode_starts(frames.decode_starts(frame))
        case "suspect":
            return frames.encode_suspect(frames.decode_suspect(frame))
        case "on behalf":
            return encode_on_behalf(decode_on_behalf(frame))
    rows = frames.decode_push(frame)
    data = b"".join(part for _, part in rows)
    return frames.encode_push([row for row, _ in rows], len(data)) + data


@pytest.mark.parametrize("name", FIRST["replication"])
def test_a_frame_between_brokers_is_read_and_written_alike(name: str) -> None:
    frame = bytes.fromhex(FIRST["replication"][name])
    assert frames_again(name, memoryview(frame)[LENGTH_BYTES:]) == frame


@pytest.mark.parametrize("version", FIRST["images"])
def test_an_image_is_read_and_written_alike(version: str) -> None:
    encoded = bytes.fromhex(FIRST["images"][version])
    assert snapshot.encode(snapshot.decode(encoded)) == encoded


@pytest.mark.parametrize("version", EARLY["images"])
def test_an_image_of_an_early_version_is_read(version: str) -> None:
    image = snapshot.decode(bytes.fromhex(EARLY["images"][version]))
    assert (image.index, image.cluster_id, image.next_producer_id) == (42, "cluster", 2000)
    assert image.broker_configs == {"": {"flush.policy": "os"}, "1": {"log.retention.ms": "9"}}
    assert image.brokers[ONE].endpoints[0].host == "host-1"
    assert image.brokers[ONE].is_fenced == (version == "3")
    assert image.partition(UUID(int=5), 0) == PartitionImage((ONE, TWO), (ONE,), ONE, 3, 4)
    [acl] = image.acls.values()
    assert (acl.principal, acl.on.name) == ("User:alice", "flights")


def loaded(files: dict[str, Any]) -> dict[str, str]:
    """Return what is read from the checkpoint files of a log."""
    disk = SimulatedDisk(random.Random(1))
    disk.make_directories(DIRECTORY)
    for name in (state.RECOVERY_FILE, state.EPOCHS_FILE):
        disk.open(f"{DIRECTORY}/{name}", create=True).pwrite((bytes.fromhex(files[name]),), 0)
    return content(disk)


@pytest.mark.parametrize("version", FIRST["checkpoints"])
def test_a_checkpoint_of_a_log_is_read(version: str) -> None:
    files = FIRST["checkpoints"][version]
    assert loaded(files) == files["read"]


def test_a_checkpoint_of_the_first_version_has_no_manifest() -> None:
    read = loaded(EARLY["checkpoints"]["1"])
    assert (read["log_start"], read["recovery_point"], read["segments"], read["damage"]) == ("0", "16", "None", "[]")
    assert read["epochs"] == EARLY["checkpoints"]["1"]["leader-epochs"][-48:]
