"""Answers about consumer and share groups beside those of Apache Kafka and of franz-go's kfake.

All get the same raw requests, and an answer must be Kafka's. Where kfake answers otherwise than Kafka, Kafka counts: a
script fails against kfake only if an answer of ours is neither's. With the word `record` the run writes Kafka's answers
for `tests/clients`.
"""

import json
import re
import shutil
import subprocess
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import consumer_group_scripts
import share_group_scripts
from brokers import Brokers
from consumer_group_scripts import SETTINGS
from group_dialog import Answers, Script, differences, play, scripts_of
from requirements import Requirement
from suite import CACHE, HERE, ROOT, Suite, Unmet, run_command
from suite_verdict import Outcomes

from cordwood.bench.kafka import VERSION, Kafka
from cordwood.bench.systems import CannotRun

KFAKE = HERE / "kfake_broker"
RECORDED = ROOT / "tests" / "clients" / "group_answers.json"
RECORD = "record"
BUILD_LIMIT_S, STOP_S = 600, 10
AT_ONCE: Mapping[str, str] = {
    f"group.{kind}.{key}": value
    for kind in ("consumer", "share")
    for key, value in (
        ("assignment.interval.ms", "0"),
        ("min.assignment.interval.ms", "0"),
        ("assignor.offload.enable", "false"),
    )
}
"""Settings with which Kafka assigns within the heartbeat, so that its answers do not depend on time."""


class GroupAnswers(Suite):
    """Each script against each of the two; `words` are parts of names of scripts."""

    name, version, counts, settings = "group_answers", VERSION, (1,), SETTINGS

    def __init__(self) -> None:
        one = {"share.coordinator.state.topic.replication.factor": "1", "share.coordinator.state.topic.min.isr": "1"}
        self._kafka = Kafka(CACHE, settings={**_dotted(SETTINGS), **AT_ONCE, **one})
        self._kfake = CACHE / "kfake-broker"

    def prepare(self) -> None:
        try:
            self._kafka.prepare()
        except CannotRun as reason:
            raise Unmet(Requirement.MAVEN, str(reason)) from None
        build = ["go", "build", "-o", self._kfake, "."]
        output = CACHE / "output" / f"{self.name}-build.log"
        if shutil.which("go") is None or run_command(build, output, BUILD_LIMIT_S, cwd=KFAKE) != 0:
            raise Unmet(Requirement.GO, "kfake could not be built")

    def run(self, brokers: Brokers, place: Path, output: Path, words: Sequence[str]) -> Outcomes:
        parts = [word for word in words if word != RECORD]
        scripts = {
            name: script
            for name, script in scripts_of(consumer_group_scripts, share_group_scripts).items()
            if not parts or any(part in name for part in parts)
        }
        with output.open("a") as log:
            with self._kafka.running(place / "kafka") as kafka:
                theirs = _played("Kafka", scripts, kafka.bootstrap, log.write)
            if RECORD in words:
                record(theirs)
            with self._running_kfake() as address:
                fakes = _played("kfake", scripts, address, log.write)
            ours = _played("Cordwood", scripts, brokers.bootstrap, log.write)
            return compared(ours, theirs, fakes, log.write)

    @contextmanager
    def _running_kfake(self) -> Iterator[str]:
        words = [f"{key}={value}" for key, value in _dotted(SETTINGS).items()]
        process = subprocess.Popen([self._kfake, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.communicate(timeout=STOP_S)


def compared(
    ours: Mapping[str, Answers],
    theirs: Mapping[str, Answers],
    fakes: Mapping[str, Answers],
    write: Callable[[str], object],
) -> Outcomes:
    """Return the outcome of each script, and write every difference."""
    outcomes: Outcomes = {}
    for name, expected in theirs.items():
        found = ours.get(name, [])
        differing = differences(expected, found)
        outcomes[f"kafka/{name}"] = "failed" if differing else "passed"
        write("".join(f"==> {name}: not as Kafka: {line}\n" for line in differing))
        if (fake := fakes.get(name)) is None:
            outcomes[f"kfake/{name}"] = "skipped"
            continue
        wrong = [line for line in differences(fake, found) if _number(line) in map(_number, differing)]
        outcomes[f"kfake/{name}"] = "failed" if wrong else "passed"
        write("".join(f"==> {name}: kfake is not as Kafka: {line}\n" for line in differences(expected, fake)))
    return outcomes


def record(answers: Mapping[str, Answers]) -> None:
    """Write Kafka's answers, one a line, with what they were recorded by."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short=12", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    scripts = ",\n".join(
        f"  {json.dumps(name)}: [\n" + ",\n".join(f"   {json.dumps(answer)}" for answer in found) + "\n  ]"
        for name, found in sorted(answers.items())
    )
    head = f'"oracle": "Apache Kafka {VERSION}",\n "commit": "{commit.stdout.strip()}"'
    RECORDED.write_text(f'{{\n {head},\n "scripts": {{\n{scripts}\n }}\n}}\n')


def _played(
    who: str, scripts: Mapping[str, Script], bootstrap: str, write: Callable[[str], object]
) -> dict[str, Answers]:
    """Play every script. One that cannot be played to its end is left out."""
    played = {}
    for name, script in scripts.items():
        try:
            played[name] = play(script, bootstrap)
        except Exception:
            write(f"==> {name} against {who}\n{traceback.format_exc()}")
    return played


def _number(difference: str) -> str:
    found = re.match(r"\d+", difference)
    return found[0] if found else ""


def _dotted(settings: Mapping[str, str]) -> dict[str, str]:
    return {key.replace("_", "."): value for key, value in settings.items()}
