"""Both releases make the same image of the same entries at level 1: otherwise a mixed cluster has two truths."""

import json
import subprocess
from collections import Counter
from typing import Any

from previous_release import environment
from random_commands import History

from cordwood.cluster.metadata import command_codec

HISTORIES, COMMANDS = 60, 120
COMPARED_S = 100.0

APPLIER = """
import hashlib, json, sys
try:
    from cordwood.cluster.metadata.command_codec import decode
except ImportError:
    from cordwood.cluster.metadata.commands import decode
from cordwood.cluster.metadata import snapshot
from cordwood.cluster.metadata.image import Image
from cordwood.cluster.metadata.image_builder import ImageBuilder
from cordwood.cluster.metadata.quorum import attempt

def applied(history):
    image = Image()
    for row in history:
        builder = ImageBuilder(image)
        refusal = attempt(builder, decode(bytes.fromhex(row)), image.index + 1)
        image = builder.image()
        yield [hashlib.sha256(snapshot.encode(image)).hexdigest()[:16], "" if refusal is None else refusal.code.name]

json.dump([list(applied(history)) for history in json.load(sys.stdin)], sys.stdout)
"""
"""Applies histories of commands. Prints a digest of each image, and the code of each refusal."""


def applied_by(python: str, histories: list[list[str]]) -> Any:
    done = subprocess.run(
        [python, "-P", "-c", APPLIER],
        input=json.dumps(histories),
        capture_output=True,
        text=True,
        timeout=COMPARED_S,
        env=environment(python),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_previous_release_makes_the_same_image_of_the_same_commands(previous: str) -> None:
    commands = [list(History(seed).commands(COMMANDS)) for seed in range(HISTORIES)]
    histories = [[command_codec.encode(command).hex() for command in history] for history in commands]
    namespace: dict[str, Any] = {}
    exec(APPLIER.partition("\njson.dump")[0], namespace)
    ours = [list(namespace["applied"](history)) for history in histories]
    theirs = applied_by(previous, histories)
    for seed, history in enumerate(commands):
        for number, command in enumerate(history):
            assert ours[seed][number] == theirs[seed][number], f"history {seed}, command {number}: {command}"
    accepted = Counter(
        type(command).__name__
        for history, outcomes in zip(commands, ours, strict=True)
        for command, (_, code) in zip(history, outcomes, strict=True)
        if not code
    )
    assert len(accepted) == 18
    assert min(accepted.values()) > 10, accepted
