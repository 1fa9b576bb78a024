"""A private network on this machine, with one network namespace per broker and one-way partitions.

The namespace of the program that drives the brokers forwards their packets. A partition is a routing rule there that
drops packets from one broker to another silently: connections stay open and nothing arrives, as with a pulled cable.
Each direction is cut separately. The network needs root and iproute2; it needs neither netfilter nor a proxy between
the brokers.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

INSIDE = "CHAOS_NETWORK"
"""Environment variable of a program that runs in its own network."""

NAMESPACES = Path("/run/netns")
FORWARDING = Path("/proc/sys/net/ipv4/ip_forward")

ENTERING = ("unshare", "--net", "--mount")

Direction = tuple[int, int]
"""The broker that sends, and the broker that does not receive."""


class NetworkUnavailable(Exception):
    """This machine or this user may not create networks."""


def why_not() -> str | None:
    """Return why no network can be created here; None where one can."""
    if INSIDE in os.environ:
        return None
    if os.geteuid() != 0 or not all(map(shutil.which, ("unshare", "ip"))):
        return "this needs root, unshare and iproute2"
    probe = subprocess.run([*ENTERING, "true"], capture_output=True, text=True, timeout=60, check=False)
    return probe.stderr.strip() or None


def enter() -> None:
    """Restart this program in its own network namespace; return where it runs in one already.

    Everything made in the namespace is removed when the program ends. Raises NetworkUnavailable.
    """
    if INSIDE in os.environ:
        return
    if reason := why_not():
        raise NetworkUnavailable(reason)
    command = [*ENTERING, sys.executable, *sys.orig_argv[1:]]
    os.execvpe(command[0], command, {**os.environ, INSIDE: "1"})


class NamespaceNetwork:
    """One namespace per broker, all connected through ours. Made once, by a program in its own namespace."""

    def __init__(self, ids: Iterable[int]) -> None:
        assert INSIDE in os.environ, "rules and routes belong into a network of their own"
        self.ids = list(ids)
        self._cut: set[Direction] = set()
        # `ip netns exec` gives each broker its own mounts: an unmount of ours must reach them, or the mount stays in
        # use.
        _run("mount", "--make-rshared", "/")
        NAMESPACES.mkdir(parents=True, exist_ok=True)
        _run("mount", "-t", "tmpfs", "namespaces", str(NAMESPACES))
        _run("ip", "link", "set", "lo", "up")
        FORWARDING.write_text("1")
        for id_ in self.ids:
            self._join(id_)

    def address(self, id_: int) -> str:
        """Return the address that a broker listens on."""
        return f"10.77.{id_}.2"

    def inside(self, id_: int) -> tuple[str, ...]:
        """Return the command prefix that runs a command in a broker's namespace."""
        return ("ip", "netns", "exec", _name(id_))

    def cut(self, directions: Iterable[Direction]) -> None:
        """Drop all packets of these directions from now on."""
        for direction in set(directions) - self._cut:
            self._rule("add", direction)
            self._cut.add(direction)

    def heal(self) -> None:
        """Remove all partitions."""
        for direction in self._cut:
            self._rule("del", direction)
        self._cut.clear()

    @property
    def ways(self) -> dict[str, Callable[[int], None]]:
        """Ways to cut one broker off from all others, or from the next one, by name."""
        return {
            "alone": lambda id_: self.cut(self.around(id_)),
            "deaf": lambda id_: self.cut(self.towards(id_)),
            "mute": lambda id_: self.cut(self.out_of(id_)),
            "apart from one": lambda id_: self.cut([(id_, self._next(id_)), (self._next(id_), id_)]),
            "mute to one": lambda id_: self.cut([(id_, self._next(id_))]),
        }

    def around(self, id_: int) -> Iterator[Direction]:
        """Return both directions between a broker and every other."""
        yield from self.towards(id_)
        yield from self.out_of(id_)

    def towards(self, id_: int) -> Iterator[Direction]:
        """Return the directions from every other broker to this one."""
        return ((other, id_) for other in self.ids if other != id_)

    def out_of(self, id_: int) -> Iterator[Direction]:
        """Return the directions from this broker to every other."""
        return ((id_, other) for other in self.ids if other != id_)

    def _next(self, id_: int) -> int:
        return self.ids[(self.ids.index(id_) + 1) % len(self.ids)]

    def _rule(self, action: str, direction: Direction) -> None:
        sender, receiver = map(self.address, direction)
        _run("ip", "rule", action, "from", sender, "to", receiver, "blackhole")

    def _join(self, id_: int) -> None:
        name, link = _name(id_), f"to-{_name(id_)}"
        _run("ip", "netns", "add", name)
        _run("ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", name)
        _run("ip", "address", "add", f"10.77.{id_}.1/24", "dev", link)
        _run("ip", "link", "set", link, "up")
        _run("ip", "-n", name, "address", "add", f"{self.address(id_)}/24", "dev", "eth0")
        _run("ip", "-n", name, "link", "set", "eth0", "up")
        _run("ip", "-n", name, "link", "set", "lo", "up")
        _run("ip", "-n", name, "route", "add", "default", "via", f"10.77.{id_}.1")


def _name(id_: int) -> str:
    return f"broker-{id_}"


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        raise NetworkUnavailable(f"{' '.join(command)} failed: {done.stderr.strip()}")
