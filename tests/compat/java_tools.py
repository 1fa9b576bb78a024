"""Kafka's own tools, from the jars of Maven Central: one process for each command."""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from requirements import Requirement
from suite import CACHE, Unmet

from cordwood.bench.maven import fetch_jars
from cordwood.bench.systems import CannotRun

TOOL_LIMIT_S = 60.0


class JavaTools:
    """The classes of some of Kafka's jars in one version, with the client of that version."""

    def __init__(
        self, version: str, artifacts: Sequence[str] = ("kafka-tools", "kafka_2.13"), name: str = "kafka"
    ) -> None:
        self.version = version
        self.jars = CACHE / f"{name}-{version}"
        self._artifacts = artifacts

    def fetch(self) -> None:
        """Fetch the jars. Raises Unmet."""
        if shutil.which("java") is None:
            raise Unmet(Requirement.MAVEN, "there is no Java here")
        try:
            wanted = [("org.apache.kafka", name, self.version) for name in self._artifacts]
            fetch_jars("The suite", wanted, self.jars)
        except CannotRun as reason:
            raise Unmet(Requirement.MAVEN, str(reason)) from None

    def command(self, tool: str, *words: str) -> list[str]:
        """Return the command line of a class of org.apache.kafka.tools."""
        return ["java", "-Xmx256m", "-cp", f"{self.jars}/*", f"org.apache.kafka.tools.{tool}", *words]

    def admin_command(self, tool: str, *words: str) -> list[str]:
        """Return the command line of a class of kafka.admin."""
        return ["java", "-Xmx256m", "-cp", f"{self.jars}/*", f"kafka.admin.{tool}", *words]

    def home(self, place: Path) -> Path:
        """Make a folder like one of a Kafka release, for programs that start Kafka's scripts from there. Return it."""
        folder = place / "kafka"
        (folder / "bin").mkdir(parents=True)
        (folder / "libs").symlink_to(self.jars)
        scripts = {
            "kafka-topics.sh": " ".join(f"'{word}'" for word in self.command("TopicCommand")),
            "kafka-run-class.sh": f'java -Xmx256m -cp "$CLASSPATH:{self.jars}/*"',
        }
        for name, command in scripts.items():
            script = folder / "bin" / name
            script.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
            script.chmod(0o755)
        return folder

    def start(self, output: Path, tool: str, *words: str) -> "subprocess.Popen[bytes]":
        """Start a tool with its output in a file."""
        with output.open("ab") as log:
            return subprocess.Popen(self.command(tool, *words), stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def table(self, *words: str) -> list[dict[str, str]]:
        """Run `kafka-transactions` and return the rows of the table that it prints."""
        done = subprocess.run(
            self.command("TransactionsCommand", *words),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TOOL_LIMIT_S,
            check=False,
        )
        assert done.returncode == 0, f"{' '.join(words)}: {done.returncode}\n{done.stdout}{done.stderr}"
        return rows(done.stdout.splitlines())


def rows(lines: Sequence[str]) -> list[dict[str, str]]:
    """Return the rows of a table whose columns are separated by tabs, by the names in its first line."""
    cells = [[cell.strip() for cell in line.split("\t")] for line in lines if "\t" in line]
    return [dict(zip(cells[0], row, strict=True)) for row in cells[1:]]
