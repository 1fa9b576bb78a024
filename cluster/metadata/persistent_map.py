"""Persistent map: a change makes a new map that shares all but the changed part with the old one (docs/adr/0053).

A trie over the bits of a key, with dicts as leaves. A change copies a leaf and the branches above it; a comparison of
two maps skips their shared parts. Leaves of dicts keep reads fast, and their order the same in every process: the bits
are those of `bits`, never of `hash`, which differs between processes.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, ValuesView
from itertools import chain, compress, filterfalse
from operator import is_not
from typing import Any, Final, TypeVar, cast, overload
from uuid import UUID
from zlib import crc32

K = TypeVar("K")
V = TypeVar("V")
D = TypeVar("D")

BRANCH_BITS = 5
BRANCHES = 1 << BRANCH_BITS
LEAF_MAX = 128
"""Entries of a leaf, unless their keys have the same bits down to DEPTH_MAX."""
DEPTH_MAX = 6
_MASK = BRANCHES - 1

_Node = dict[Any, Any] | tuple["_Node", ...]


class Removed:
    """Marker of a removed key."""


REMOVED: Final = Removed()


class PersistentMap(Mapping[K, V]):
    """A mapping that is never changed in place."""

    __slots__ = ("_count", "_root", "bits")

    def __init__(self, bits: Callable[[K], int], items: Iterable[tuple[K, V]] = ()) -> None:
        """`bits` returns the bits of a key, the same in every process, and different for most keys."""
        self.bits = bits
        self._root: _Node = _leaf_or_branch(dict(items), bits, 0)
        self._count = sum(map(len, _leaves(self._root)))

    def __getitem__(self, key: K) -> V:
        return cast("V", self._leaf(key)[key])

    @overload
    def get(self, key: K, /) -> V | None: ...
    @overload
    def get(self, key: K, /, default: V | D) -> V | D: ...

    def get(self, key: K, default: Any = None) -> Any:
        node = self._root
        return (node if type(node) is dict else self._leaf(key)).get(key, default)

    def __contains__(self, key: object) -> bool:
        return self.get(cast("K", key), cast("V", REMOVED)) is not REMOVED

    def _leaf(self, key: K) -> dict[K, Any]:
        """Return the leaf that has the key, or would have it."""
        node = self._root
        if isinstance(node, tuple):
            bits = self.bits(key)
            while isinstance(node, tuple):
                node = node[bits & _MASK]
                bits >>= BRANCH_BITS
        return node

    def __eq__(self, other: object) -> bool:
        """Compare the tries first: mostly they are equal, and no entry is looked up."""
        is_equal = isinstance(other, PersistentMap) and self.bits is other.bits and self._root == other._root
        return is_equal or Mapping.__eq__(self, other)

    def __iter__(self) -> Iterator[K]:
        return chain.from_iterable(_leaves(self._root))

    def __len__(self) -> int:
        return self._count

    def values(self) -> ValuesView[V]:
        return _Values(self)

    def _each_value(self) -> Iterator[V]:
        return chain.from_iterable(map(dict.values, _leaves(self._root)))

    def updated(self, changes: Mapping[K, V | Removed]) -> "PersistentMap[K, V]":
        """Return the map after `changes`: new values by key, REMOVED for keys that are not in it afterwards."""
        if not changes:
            return self
        bits = self.bits
        made: PersistentMap[K, V] = PersistentMap.__new__(PersistentMap)
        made.bits = bits
        made._root, added = _updated(self._root, [(bits(key), key, value) for key, value in changes.items()], bits, 0)
        made._count = self._count + added
        return made


class _Values(ValuesView[V]):
    """The values of a map, without a look-up of each key."""

    _mapping: PersistentMap[Any, V]

    def __iter__(self) -> Iterator[V]:
        return self._mapping._each_value()


def differences(old: Mapping[K, V], new: Mapping[K, V]) -> Iterator[tuple[K, V | None, V | None]]:
    """Yield each key whose value is another object in `new`, with both; None on the side that does not have it.

    What two persistent maps share is not visited.
    """
    if isinstance(old, PersistentMap) and isinstance(new, PersistentMap) and old.bits is new.bits:
        pairs: list[tuple[_Node, _Node]] = [(old._root, new._root)]
    else:
        pairs = [(dict(old), dict(new))]
    while pairs:
        before, after = pairs.pop()
        if before is after:
            continue
        if isinstance(before, tuple) and isinstance(after, tuple):
            pairs += compress(zip(before, after, strict=True), map(is_not, before, after))
        else:
            yield from _leaf_differences(_flat(before), _flat(after))


def _leaf_differences(before: dict[K, V], after: dict[K, V]) -> Iterator[tuple[K, V | None, V | None]]:
    # No Python bytecode for each entry that is as it was.
    for key in compress(before, map(is_not, before.values(), map(after.get, before))):
        yield key, before[key], after.get(key)
    for key in filterfalse(before.__contains__, after):
        yield key, None, after[key]


def _flat(node: _Node) -> dict[Any, Any]:
    return node if isinstance(node, dict) else dict(chain.from_iterable(map(dict.items, _leaves(node))))


def _leaves(node: _Node) -> Iterator[dict[Any, Any]]:
    nodes = [node]
    while nodes:
        node = nodes.pop()
        if isinstance(node, dict):
            yield node
        else:
            nodes += reversed(node)


def _leaf_or_branch(entries: dict[Any, Any], bits: Callable[[Any], int], depth: int) -> _Node:
    if len(entries) <= LEAF_MAX or depth == DEPTH_MAX:
        return entries
    shift = depth * BRANCH_BITS
    parts: list[dict[Any, Any]] = [{} for _ in range(BRANCHES)]
    for key, value in entries.items():
        parts[bits(key) >> shift & _MASK][key] = value
    return tuple(_leaf_or_branch(part, bits, depth + 1) for part in parts)


def _updated(
    node: _Node, changes: list[tuple[int, Any, Any]], bits: Callable[[Any], int], depth: int
) -> tuple[_Node, int]:
    """Return the node after the changes, and how many more entries it has."""
    if isinstance(node, dict):
        entries = dict(node)
        for _, key, value in changes:
            if value is REMOVED:
                entries.pop(key, None)
            else:
                entries[key] = value
        return _leaf_or_branch(entries, bits, depth), len(entries) - len(node)
    children, added_in_all = list(node), 0
    for branch, of_branch in _by_branch(changes, depth * BRANCH_BITS).items():
        children[branch], added = _updated(children[branch], of_branch, bits, depth + 1)
        added_in_all += added
    if added_in_all < 0 and all(isinstance(child, dict) for child in children):
        count = sum(map(len, children))
        if count <= LEAF_MAX // 2:
            return _flat(tuple(children)), added_in_all
    return tuple(children), added_in_all


def _by_branch(changes: list[tuple[int, Any, Any]], shift: int) -> dict[int, list[tuple[int, Any, Any]]]:
    if len(changes) == 1:
        return {changes[0][0] >> shift & _MASK: changes}
    by_branch: dict[int, list[tuple[int, Any, Any]]] = {}
    for change in changes:
        by_branch.setdefault(change[0] >> shift & _MASK, []).append(change)
    return by_branch


def bits_of_name(name: str) -> int:
    return crc32(name.encode())


def bits_of_id(topic_id: UUID) -> int:
    return topic_id.int


def bits_of_place(place: tuple[UUID, int]) -> int:
    """Return the bits of a topic id and a partition index: the partitions of a topic are spread, too."""
    topic_id, index = place
    return topic_id.int + index
