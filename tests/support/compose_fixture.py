"""The brokers of compose.yaml, built from a clean copy of the tree."""

import os
import shutil
import subprocess
from pathlib import Path
from uuid import uuid4

import docker
from docker.models.containers import Container

ROOT = Path(__file__).resolve().parents[2]

BROKERS = (1, 2, 3)
BOOTSTRAP = "localhost:19092"
EVERY_BROKER = "localhost:19092,localhost:19093,localhost:19094"

BUILD_AND_START_S = 240.0
STOP_S = 60.0


class ComposedCluster:
    """A compose project with a name of its own, on the addresses that compose.yaml publishes."""

    def __init__(self, source: Path) -> None:
        self._source = source
        self.project = f"cordwood-test-{uuid4().hex[:8]}"
        self._engine = docker.from_env()

    def up(self) -> None:
        """Build, start, and wait until compose reports every broker healthy."""
        self._compose("up", "--build", "--wait", seconds=BUILD_AND_START_S)

    def kill(self, broker_id: int) -> None:
        """Send SIGKILL to all processes of the broker's container."""
        self._container(broker_id).kill()

    def start(self, broker_id: int) -> None:
        """Start a killed container again on its volume."""
        self._container(broker_id).start()

    def stop(self, broker_id: int) -> int:
        """Send SIGTERM, and SIGKILL after compose.yaml's grace period. Return the exit code."""
        container = self._container(broker_id)
        container.stop()
        exit_code: int = container.wait(timeout=STOP_S)["StatusCode"]
        return exit_code

    def is_healthy(self, broker_id: int) -> bool:
        """Return whether the engine reports the broker healthy."""
        return bool(self._container(broker_id).health == "healthy")

    def said_by(self, broker_id: int, *command: str) -> str:
        """Run a command in the broker's container and return its output."""
        outcome = self._container(broker_id).exec_run(list(command))
        text: str = outcome.output.decode()
        assert outcome.exit_code == 0, text
        return text

    def logs(self) -> str:
        """Return the last log lines of each broker, for a failure's message."""
        return "".join(
            f"--- {container.name}\n{container.logs(tail=20).decode(errors='replace')}"
            for container in self._containers()
        )

    def down(self) -> None:
        """Remove containers, volumes, network and images in any state."""
        self._compose("down", "--volumes", "--rmi", "local", "--timeout", "1", seconds=STOP_S)

    def leftovers(self) -> list[str]:
        """Return the names of what the engine still has of this project."""
        mine = {"label": f"com.docker.compose.project={self.project}"}
        found = (
            *self._engine.containers.list(all=True, filters=mine),
            *self._engine.volumes.list(filters=mine),
            *self._engine.networks.list(filters=mine),
        )
        return [thing.name for thing in found]

    def _container(self, broker_id: int) -> Container:
        return self._engine.containers.get(f"{self.project}-broker-{broker_id}-1")

    def _containers(self) -> list[Container]:
        mine = {"label": f"com.docker.compose.project={self.project}"}
        found: list[Container] = self._engine.containers.list(all=True, filters=mine)
        return found

    def _compose(self, *words: str, seconds: float) -> None:
        environ = {key: value for key, value in os.environ.items() if not key.startswith(("COMPOSE_", "CORDWOOD_"))}
        done = subprocess.run(
            ["docker", "compose", "--project-name", self.project, *words],
            cwd=self._source,
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
        )
        assert done.returncode == 0, f"docker compose {' '.join(words)}:\n{done.stderr}\n{self.logs()}"


def why_not_here() -> str | None:
    """Return what this machine lacks for compose.yaml, or None."""
    if shutil.which("docker") is None:
        return "docker is not installed (tests/docker/prepare installs it)"
    try:
        docker.from_env().ping()
    except docker.errors.DockerException:
        return "no Docker engine answers (tests/docker/prepare starts one)"
    if subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode:
        return "docker has no compose command (tests/docker/prepare installs it)"
    return None


def clean_copy(target: Path) -> Path:
    """Copy the files of a clone of this tree, with the uncommitted changes. Return `target`."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, check=True, text=True).stdout.split("\0")
    for name in filter(None, names):
        if os.path.lexists(ROOT / name):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name, follow_symlinks=False)
    return target
