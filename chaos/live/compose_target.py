"""A target of the brokers of a Docker Compose project, with faults injected by the Docker engine."""

import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import docker
from docker.errors import DockerException
from docker.models.containers import Container
from docker.models.networks import Network

from cordwood.chaos.live.broker_views import BrokerUnreachable, brokers_seen_by
from cordwood.chaos.live.brokers import REPLICAS_MAX, LiveCluster
from cordwood.chaos.live.faults import disks, links, processes
from cordwood.chaos.live.faults.fault import Fault
from cordwood.chaos.live.process import BrokerEnded, wait_for
from cordwood.chaos.live.target import CannotHarm, FaultTarget

PROJECT_LABEL, SERVICE_LABEL = "com.docker.compose.project", "com.docker.compose.service"
NODE_ID = "CORDWOOD_NODE_ID"
DATA = "/var/lib/cordwood"
READY_S = 60.0
STOP_S = 40
DEFAULT_FAULTS = ("kill", "coordinator-kill", "pause", "partition", "rolling-restart")
"""The default faults: none that deletes a container's data."""


class ContainerBroker:
    """A broker in a container, reached on the port that the container publishes on this machine."""

    def __init__(self, container: Container) -> None:
        self._container = container
        self.address = _published(container)
        self.is_running = True

    @property
    def service(self) -> str:
        """The host name of this broker for other containers."""
        return str(self._container.labels[SERVICE_LABEL])

    @property
    def container(self) -> Container:
        """The engine's container object."""
        return self._container

    @property
    def has_ended(self) -> bool:
        """Whether the container ended by itself."""
        self._container.reload()
        return self.is_running and self._container.status == "exited"

    def begin(self) -> None:
        """Start the container on its volume."""
        self._container.start()
        self.is_running = True

    def wait(self) -> None:
        """Wait until the broker answers a request: the engine accepts connections earlier. Raises BrokerEnded."""
        if not wait_for(self._answers, READY_S):
            raise BrokerEnded(f"{self.service} took no connections within {READY_S:.0f} s:\n{self.last_words()}")

    def kill(self) -> None:
        """Send SIGKILL to the container."""
        if self.is_running:
            self._container.kill()
            self.is_running = False

    def stop(self) -> None:
        """Send SIGTERM, and wait for the end."""
        if self.is_running:
            self._container.stop(timeout=STOP_S)
            self.is_running = False

    def pause(self) -> None:
        """Freeze all processes of the container."""
        self._container.pause()

    def resume(self) -> None:
        """Resume all processes of the container."""
        self._container.unpause()

    def _answers(self) -> bool:
        try:
            brokers_seen_by(self.address)
        except BrokerUnreachable:
            return False
        return True

    def last_words(self) -> str:
        """Return the last lines of the container's output."""
        return str(self._container.logs(tail=20).decode(errors="replace"))


class ComposeCluster(LiveCluster):
    """The brokers of one project. Raises CannotHarm where none runs."""

    def __init__(self, engine: docker.DockerClient, project: str) -> None:
        containers = engine.containers.list(filters={"label": f"{PROJECT_LABEL}={project}"})
        by_id = {id_: container for container in containers if (id_ := _node_id(container)) is not None}
        if not by_id:
            raise CannotHarm(f"no broker of the compose project {project} runs: docker compose up --build --wait")
        self.brokers: dict[int, ContainerBroker] = {id_: ContainerBroker(by_id[id_]) for id_ in sorted(by_id)}
        self.replicas = min(len(self.brokers), REPLICAS_MAX)


def reasons() -> dict[str, str]:
    """Return the faults that are not possible on containers, each with its reason."""
    no_disk = "a container's volume is a directory of its host's file system, which other processes use too"
    return {
        **dict.fromkeys(("power-cut", "disk-full", "fsync-error"), no_disk),
        "bit-flip": "files are checked with --target local only",
        "clock-jump": "all containers share their host's time of day",
    }


@contextmanager
def opened(project: str, faults: Sequence[str]) -> Iterator[FaultTarget]:
    """Yield the project's brokers, which run already and run again at the end of the block. Raises CannotHarm."""
    try:
        engine = docker.from_env()
        engine.ping()
    except DockerException:
        raise CannotHarm("no Docker engine answers: check that it is installed and that you may use it") from None
    cluster = ComposeCluster(engine, project)
    [network, *_] = engine.networks.list(filters={"label": f"{PROJECT_LABEL}={project}"})
    cut = _Cut(network, cluster)
    makers: Mapping[str, Callable[[], Fault]] = {
        "kill": lambda: processes.Kill(cluster),
        "coordinator-kill": lambda: processes.CoordinatorKill(cluster),
        "pause": lambda: processes.Pause(cluster),
        "rolling-restart": lambda: processes.RollingRestart(cluster),
        "partition": lambda: links.NetworkPartition(links.Links({"off the network": cut.off}, cut.restore)),
        "wipe": lambda: disks.Wipe(cluster, lambda id_: _wipe(engine, cluster.brokers[id_]), {}),
    }
    place = Path(tempfile.mkdtemp(prefix="cordwood-chaos-volumes-"))
    try:
        yield FaultTarget(
            f"compose project {project}",
            cluster,
            {name: makers[name]() for name in faults},
            lambda: _log_directories(cluster, place),
        )
    finally:
        _restore(cluster, cut)
        shutil.rmtree(place)


class _Cut:
    """The network of the brokers, and the brokers cut off from it. A cut broker loses its published port too."""

    def __init__(self, network: Network, cluster: ComposeCluster) -> None:
        self._network, self._cluster = network, cluster
        self._off: set[int] = set()

    def off(self, id_: int) -> None:
        self._network.disconnect(self._cluster.brokers[id_].container)
        self._off.add(id_)

    def restore(self) -> None:
        for id_ in self._off:
            broker = self._cluster.brokers[id_]
            self._network.connect(broker.container, aliases=[broker.service])
        self._off.clear()


def _restore(cluster: ComposeCluster, cut: _Cut) -> None:
    """Restore the deployment: every broker runs, and is on the network."""
    cut.restore()
    for broker in cluster.brokers.values():
        broker.container.reload()
        if broker.container.status == "paused":
            broker.resume()
        elif broker.container.status != "running":
            broker.begin()


def _log_directories(cluster: ComposeCluster, place: Path) -> Mapping[int, Path]:
    """Stop all brokers, and return a copy of each broker's log directory."""
    cluster.stop()
    copies = {}
    for id_, broker in cluster.brokers.items():
        archive = place / f"{id_}.tar"
        with archive.open("wb") as file:
            for piece in broker.container.get_archive(DATA)[0]:
                file.write(piece)
        with tarfile.open(archive) as packed:
            packed.extractall(place / str(id_), filter="data")
        copies[id_] = place / str(id_) / Path(DATA).name
    return copies


def _wipe(engine: docker.DockerClient, broker: ContainerBroker) -> None:
    """Kill the broker and empty its volume, by a container made for that."""
    broker.kill()
    engine.containers.run(
        broker.container.image,
        ["-c", f"rm -rf {DATA}/*"],
        entrypoint="/bin/sh",
        volumes_from=[broker.container.id],
        remove=True,
    )


def _node_id(container: Container) -> int | None:
    rows = dict(row.partition("=")[::2] for row in container.attrs["Config"]["Env"])
    return int(rows[NODE_ID]) if NODE_ID in rows else None


def _published(container: Container) -> str:
    """Return host:port of the first port that the container publishes. Raises CannotHarm."""
    bound = [host for hosts in container.ports.values() if hosts for host in hosts]
    if not bound:
        raise CannotHarm(f"{container.name} publishes no port, so it cannot be reached from here")
    return f"{bound[0]['HostIp'].replace('0.0.0.0', '127.0.0.1')}:{bound[0]['HostPort']}"
