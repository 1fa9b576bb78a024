"""The directory tree of a simulated disk: entries in memory, entries on disk, and the effect of a power cut."""

import errno
import functools
import os
import random
from dataclasses import dataclass
from typing import Any

from cordwood.chaos.sim.pages import Pages

NAMES_KEPT = 10_000
"""Paths whose names are kept: most paths are used again and again."""


class Directory:
    """The entries of a directory, as programs see them (`seen`) and as they are on disk (`kept`)."""

    __slots__ = ("kept", "seen")

    def __init__(self) -> None:
        self.seen: dict[str, Node] = {}
        self.kept: dict[str, Node] = {}


Node = Directory | Pages
Entry = tuple[Directory, str, Node | None]
"""A directory, a name in it, and its new node; None if the name is removed."""


@dataclass(frozen=True, slots=True, eq=False)
class EntryChange:
    """One create, rename or remove. Its entries reach the disk atomically."""

    entries: tuple[Entry, ...]

    def touches(self, directories: list[Directory]) -> bool:
        return any(entry[0] in directories for entry in self.entries)


class Tree:
    """Directories under a root, with the changes that are not synced, oldest first."""

    def __init__(self) -> None:
        self.root = Directory()
        self._unsynced: list[EntryChange] = []

    def find(self, path: str) -> Node | None:
        node: Any = self.root
        try:
            for name in _names(path):
                node = node.seen[name]
        except (KeyError, TypeError):
            # No such entry, or a file in the place of a directory.
            return None
        return node  # type: ignore[no-any-return]

    def find_kept(self, path: str) -> Node | None:
        """Return the node that survives the worst possible power cut."""
        node: Node = self.root
        for name in _names(path):
            if not isinstance(node, Directory) or name not in node.kept:
                return None
            node = node.kept[name]
        return node

    def file(self, path: str) -> Pages:
        """Return the pages of a file. Raises FileNotFoundError or IsADirectoryError."""
        node = self.find(path)
        if node is None:
            raise no_such_file(path)
        if isinstance(node, Directory):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return node

    def directory(self, path: str) -> Directory:
        """Return a directory. Raises FileNotFoundError or NotADirectoryError."""
        node = self.find(path)
        if node is None:
            raise no_such_file(path)
        if isinstance(node, Pages):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return node

    def place(self, path: str) -> tuple[Directory, str]:
        """Return the parent directory and the last name of a path."""
        parent, name = os.path.split(path.rstrip("/"))
        return self.directory(parent), name

    def change(self, *entries: Entry) -> None:
        for directory, name, node in entries:
            _set(directory.seen, name, node)
        self._unsynced.append(EntryChange(entries))

    def lose(self, path: str) -> None:
        """Remove a name immediately, from memory and from the disk."""
        directory, name = self.place(path)
        directory.seen.pop(name, None)
        directory.kept.pop(name, None)
        lost = directory, name
        self._unsynced = [change for change in self._unsynced if all(entry[:2] != lost for entry in change.entries)]

    def sync(self, directory: Directory) -> None:
        """Sync a directory's changes, and the changes of other directories that they depend on."""
        touched, kept, rest = [directory], [], []
        for change in reversed(self._unsynced):
            if change.touches(touched):
                touched.extend(entry[0] for entry in change.entries)
                kept.append(change)
            else:
                rest.append(change)
        for change in reversed(kept):
            _keep(change)
        self._unsynced = rest[::-1]

    def fail_sync(self, directory: Directory) -> None:
        """Fail a sync: programs still see the changes, and no later sync writes them."""
        self._unsynced = [change for change in self._unsynced if not change.touches([directory])]

    def lose_power(self, rng: random.Random, keep: float) -> None:
        """Keep a random prefix of each directory's unsynced changes, because a journal keeps their order."""
        stopped: list[Directory] = []
        for change in self._unsynced:
            if rng.random() < keep and not change.touches(stopped):
                _keep(change)
            else:
                stopped.extend(entry[0] for entry in change.entries)
        self._unsynced.clear()
        _see_what_was_kept(self.root)

    def files(self) -> list[tuple[str, Pages]]:
        """Return every file that programs see, with its path, in order."""
        found: list[tuple[str, Pages]] = []
        _add_files_below("", self.root, found)
        return found

    def used_bytes(self) -> int:
        """Return the size of all files that programs see."""
        return _bytes_below(self.root)


def no_such_file(path: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


@functools.lru_cache(NAMES_KEPT)
def _names(path: str) -> tuple[str, ...]:
    return tuple(name for name in path.split("/") if name not in ("", "."))


def _set(entries: dict[str, Node], name: str, node: Node | None) -> None:
    if node is None:
        entries.pop(name, None)
    else:
        entries[name] = node


def _keep(change: EntryChange) -> None:
    for directory, name, node in change.entries:
        _set(directory.kept, name, node)


def _see_what_was_kept(directory: Directory) -> None:
    directory.seen = dict(directory.kept)
    for node in directory.seen.values():
        if isinstance(node, Directory):
            _see_what_was_kept(node)


def _add_files_below(path: str, directory: Directory, found: list[tuple[str, Pages]]) -> None:
    for name, node in sorted(directory.seen.items()):
        if isinstance(node, Directory):
            _add_files_below(f"{path}/{name}", node, found)
        else:
            found.append((f"{path}/{name}", node))


def _bytes_below(directory: Directory) -> int:
    size = 0
    for node in directory.seen.values():
        size += _bytes_below(node) if isinstance(node, Directory) else node.seen.size
    return size
