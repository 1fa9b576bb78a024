"""Repair of the two copies of a single broker's metadata: each is checked, and the sound one replaces the other.

A command counts once both copies have it on disk. So either copy alone, if it is sound, has every command that was
answered. The longer copy has in addition at most the writes that were in flight when the broker crashed.
"""

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

from cordwood.cluster.metadata import journal, snapshot
from cordwood.cluster.metadata.mirror import copy_of
from cordwood.cluster.metadata.snapshot import Snapshot
from cordwood.storage import checkpoint
from cordwood.storage.disk import Disk, sync_directory
from cordwood.storage.errors import DamagedLog, damage_of

SECTOR_BYTES = 512
"""The unit that a disk writes atomically."""


@dataclass(frozen=True, slots=True)
class _Copy:
    """A sound copy: its newest snapshot and its journal, of which the bytes before `end` are valid records."""

    directory: str
    known: Snapshot | None
    data: bytes
    end: int
    index: int
    """The last entry of the copy."""
    committed: int
    """An entry that had been synced in both copies; later ones may have been, too."""

    @property
    def journal_path(self) -> str:
        return f"{self.directory}/{journal.NAME}"


def repair_copies(disk: Disk, directory: str) -> tuple[Snapshot | None, list[DamagedLog]]:
    """Make both copies equal and sound. Return the newest snapshot and the damage found in one of them.

    Each file is replaced atomically, and the source copy is not changed: a power cut in between loses nothing. Raises
    DamagedLog if neither copy is sound. Blocks.
    """
    second = copy_of(directory)
    if _contents(disk, directory) == _contents(disk, second):
        return _read(disk, directory).known, []
    damage = _repair_snapshot(disk, directory, second)
    copies, unsound = _read_both(disk, directory)
    if not any(copy.data for copy in copies):
        other = unsound[1] if len(unsound) > 1 else "there is nothing"
        raise DamagedLog(unsound[0].path, unsound[0].position, f"{unsound[0].what}; the other copy: {other}")
    damage += unsound or _losses(copies) or _alterations(copies)
    best = max(copies, key=lambda copy: (copy.index, copy.committed, copy.end))
    _replace(disk, best, second if best.directory == directory else directory)
    return best.known, damage


def tidy(disk: Disk, directory: str) -> None:
    """Remove superseded snapshots and unfinished files from both copies."""
    for place in (directory, copy_of(directory)):
        snapshot.remove_all_but_newest(disk, place)
        if disk.exists(f"{place}/{journal.STAGED}"):
            disk.remove(f"{place}/{journal.STAGED}")


def verify(disk: Disk, directory: str) -> Iterator[DamagedLog]:
    """Yield the damage in either copy of metadata that no broker has open. Changes nothing.

    Stricter than `repair_copies`: a torn write is reported too.
    """
    copies, unsound = _read_both(disk, directory)
    yield from unsound or _losses(copies)
    for copy in copies:
        if copy.data:
            try:
                journal.check(copy.journal_path, copy.data)
            except DamagedLog as damage:
                yield damage


def _read_both(disk: Disk, directory: str) -> tuple[list[_Copy], list[DamagedLog]]:
    copies, unsound = [], []
    for place in (directory, copy_of(directory)):
        try:
            copies.append(_read(disk, place))
        except DamagedLog as damage:
            unsound.append(damage)
    return copies, unsound


def _read(disk: Disk, directory: str) -> _Copy:
    """Read one copy. Raises DamagedLog if the copy is not sound by itself."""
    known = _read_snapshot(disk, directory)
    path = f"{directory}/{journal.NAME}"
    if not disk.exists(path):
        if known is not None:
            raise DamagedLog(path, 0, f"the file is missing, and {snapshot.name_of(known)} is not complete")
        return _Copy(directory, None, b"", 0, 0, 0)
    data = _content(disk, path)
    if data is None:
        raise DamagedLog(path, 0, "the disk cannot read it")
    content = journal.parse(path, data)
    index = known.image.index if known is not None else 0
    if content.entries:
        first, last = content.entries[0].index, content.entries[-1].index
        if first > index + 1:
            raise DamagedLog(
                path, 0, f"the journal starts at entry {first}, and no snapshot covers the entries before it"
            )
        if last < index:
            raise DamagedLog(path, content.end, f"the journal ends at entry {last}, but the snapshot at entry {index}")
        index = last
    if index < content.committed:
        raise DamagedLog(
            path, content.end, f"entry {content.committed} was synced, but the journal ends at entry {index}"
        )
    return _Copy(directory, known, data, content.end, index, content.committed)


def _read_snapshot(disk: Disk, directory: str) -> Snapshot | None:
    return snapshot.read_newest(disk, directory) if disk.exists(directory) else None


def _repair_snapshot(disk: Disk, first: str, second: str) -> list[DamagedLog]:
    """If both copies have the same snapshot, replace a damaged one by the other, in any state of the journals.

    Snapshots of different names are the state after a crash: each of them fits only the journal of its own copy.
    """
    names = snapshot.names(disk, first)[-1:]
    if not names or names != snapshot.names(disk, second)[-1:]:
        return []
    ours, theirs = _snapshot_damage(disk, first), _snapshot_damage(disk, second)
    damage, source, target = (ours, second, first) if ours is not None else (theirs, first, second)
    if damage is None or (ours is not None and theirs is not None):
        return []
    content = _content(disk, f"{source}/{names[0]}")
    assert content is not None, "it has just been read"
    checkpoint.replace_file(disk, f"{target}/{names[0]}", (content,)).close()
    return [damage]


def _snapshot_damage(disk: Disk, directory: str) -> DamagedLog | None:
    try:
        _read_snapshot(disk, directory)
    except DamagedLog as damage:
        return damage
    return None


def _losses(copies: list[_Copy]) -> list[DamagedLog]:
    """Return the copies that end before an entry that, by the other copy, had been synced in both."""
    committed = max(copy.committed for copy in copies)
    return [
        DamagedLog(
            copy.journal_path, copy.end, f"entry {committed} was synced, but the journal ends at entry {copy.index}"
        )
        for copy in copies
        if copy.index < committed
    ]


def _alterations(copies: list[_Copy]) -> list[DamagedLog]:
    """Return the ends that look torn, and are damage according to the other copy."""
    one, other = copies
    return [
        DamagedLog(copy.journal_path, copy.end, "the file differs from the other copy in more than a torn write")
        for copy, whole in ((one, other), (other, one))
        if copy.end < len(copy.data) and not _is_torn(copy.data, whole.data[: whole.end], copy.end)
    ]


def _is_torn(data: bytes, whole: bytes, begin: int) -> bool:
    """Return whether a power cut may have turned `whole` into `data`; both have the same bytes before `begin`.

    A power cut leaves each sector as it is, or as it was before one of the writes; each write began at the start of a
    record. Also returns True if the copies cannot be compared: the bytes before `begin` differ, or `whole` ends there.
    """
    if data[:begin] != whole[:begin]:
        return True
    starts = journal.record_starts(whole)
    stop = min(len(data), len(whole))
    while begin < stop:
        sector_end = min((begin // SECTOR_BYTES + 1) * SECTOR_BYTES, stop)
        same = begin
        while same < sector_end and data[same] == whole[same]:
            same += 1
        if same < sector_end:
            written = max(begin, starts[bisect_right(starts, same) - 1])
            if any(data[written:sector_end]):
                return False
        begin = sector_end
    return True


def _replace(disk: Disk, best: _Copy, target: str) -> None:
    """Copy the files of the best copy to `target`, with their torn end: opening the journal cuts it off in both."""
    name = snapshot.name_of(best.known) if best.known is not None else None
    wanted = {journal.NAME: best.data} if best.data else {}
    if name is not None:
        content = _content(disk, f"{best.directory}/{name}")
        assert content is not None, "it has just been read"
        wanted = {name: content, **wanted}
    for file, content in wanted.items():
        if not disk.exists(f"{target}/{file}") or _content(disk, f"{target}/{file}") != content:
            checkpoint.replace_file(disk, f"{target}/{file}", (content,)).close()
    # Remove last: after a power cut in between, a damaged copy with files missing must not look sound.
    for other in snapshot.names(disk, target):
        if other != name:
            disk.remove(f"{target}/{other}")
    sync_directory(disk, target)


def _contents(disk: Disk, directory: str) -> dict[str, bytes | None]:
    """Return the journal and the newest snapshot as bytes; None for a file that cannot be read."""
    files = [*snapshot.names(disk, directory)[-1:], journal.NAME]
    return {file: _content(disk, f"{directory}/{file}") for file in files if disk.exists(f"{directory}/{file}")}


def _content(disk: Disk, path: str) -> bytes | None:
    """Return a whole file, or None if the disk cannot read it. The other copy then replaces it."""
    with closing(disk.open(path)) as file:
        try:
            return file.pread(file.size(), 0)
        except OSError as error:
            # Raises for errors that do not come from this file's content.
            damage_of(error, path, 0)
            return None
