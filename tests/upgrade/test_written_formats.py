"""Formats that this release writes at level 1, read by the previous release itself."""

import json
import subprocess
from typing import Any, get_args
from uuid import UUID

from previous_release import environment
from recorded_formats import Samples

from cordwood.cluster.metadata import command_codec
from cordwood.cluster.metadata.commands import BrokerId, Command, FormatCluster, RegisterBroker, ResourceType, level_of
from cordwood.cluster.metadata.features import FIRST_LEVEL, OF_FIRST_RELEASE
from cordwood.cluster.metadata.raft import messages

READ_S = 60.0

READER = """
import json, sys
from cordwood.cluster.metadata import commands
from cordwood.cluster.metadata.raft import messages

sent = json.load(sys.stdin)
json.dump(
    {
        "commands": [commands.encode(commands.decode(bytes.fromhex(row))).hex() for row in sent["commands"]],
        "messages": [messages.encode(messages.decode(bytes.fromhex(row))).hex() for row in sent["messages"]],
    },
    sys.stdout,
)
"""
"""Decodes and encodes, with all fields: the previous release leaves none out."""


def commands_of_level_1() -> list[Command]:
    """Return each command that level 1 has: with all its fields that level 1 has, and with its defaults."""
    found = []
    for kind in get_args(Command):
        values = {"levels": OF_FIRST_RELEASE, "metadata_version": FIRST_LEVEL, "resource_type": ResourceType.BROKER}
        known = {name: value for name, value in values.items() if name in kind.__slots__}
        command = Samples().of_class(kind, **known)
        if level_of(command) == FIRST_LEVEL and kind.__name__ != "UpdateFeatures":
            found.append(command)
    return [*found, FormatCluster("cluster"), RegisterBroker(BrokerId(1), UUID(int=1), ())]


def messages_of_the_quorum() -> list[messages.Message]:
    entries = ((b"entry", 7, 2),)
    kinds = [kind for kind in get_args(messages.Message) if getattr(kind, "LEVEL", FIRST_LEVEL) == FIRST_LEVEL]
    assert len(kinds) >= 14
    return [Samples().of_class(kind, **({"entries": entries} if "entries" in kind.__slots__ else {})) for kind in kinds]


def test_the_previous_release_reads_what_this_one_writes_at_its_level(previous: str) -> None:
    sent = commands_of_level_1()
    assert len(sent) >= 27
    rows = {
        "commands": [command_codec.encode(command).hex() for command in sent],
        "messages": [messages.encode(message).hex() for message in messages_of_the_quorum()],
    }
    done = subprocess.run(
        [previous, "-P", "-c", READER],
        input=json.dumps(rows),
        capture_output=True,
        text=True,
        timeout=READ_S,
        env=environment(previous),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answered: dict[str, Any] = json.loads(done.stdout)
    assert [command_codec.decode(bytes.fromhex(row)) for row in answered["commands"]] == sent
    assert answered["messages"] == rows["messages"]
