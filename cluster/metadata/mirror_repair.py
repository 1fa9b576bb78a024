"""Two copies of the metadata made one again: which of them is sound, how far each reaches, and what was damaged.

A command counts once both copies have it on disk. So either copy alone, if it is sound, has every command that was
answered, and the one that reaches further has at most what was being written when the broker died.
"""

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

from cordwood.cluster.metadata import journal, snapshot
from cordwood.cluster.metadata.mirror import copy_of
from cordwood.cluster.metadata.snapshot import Snapshot
from cordwood.storage.disk import Disk, sync_directory
from cordwood.storage.errors import DamagedLog, damage_of

SECTOR_BYTES = 512
"""What a disk writes whole or not at all."""


@dataclass(frozen=True, slots=True)
class _Copy:
    """One copy that is sound: its newest snapshot, and its journal's bytes, of which those before `end` are records."""

    directory: str
    known: Snapshot | None
    data: bytes
    end: int
    index: int
    """The last entry that it has."""
    committed: int
    """An entry that had been synced in both copies; there may be later ones."""

    @property
    def journal_path(self) -> str:
        return f"{self.directory}/{journal.NAME}"


def repair_copies(disk: Disk, directory: str) -> tuple[Snapshot | None, list[DamagedLog]]:
    """Leave the same sound files in both copies. Returns the newest snapshot, and what was damaged in one of them.

    Each file is replaced as a whole, and the copy that it is taken from is left alone: a power cut in between leaves
    no less than there was. Raises DamagedLog where neither copy is sound. Blocks.
    """
    second = copy_of(directory)
    if _contents(disk, directory) == _contents(disk, second):
        return _read(disk, directory).known, []
    damage = _repair_snapshot(disk, directory, second)
    copies, unsound = _read_both(disk, directory)
    if not any(copy.data for copy in copies):
        other = unsound[1] if len(unsound) > 1 else "there is nothing"
        raise DamagedLog(unsound[0].path, unsound[0].position, f"{unsound[0].what}; and in the other copy, {other}")
    damage += unsound or _losses(copies) or _alterations(copies)
    best = max(copies, key=lambda copy: (copy.index, copy.committed, copy.end))
    _replace(disk, best, second if best.directory == directory else directory)
    return best.known, damage


def tidy(disk: Disk, directory: str) -> None:
    """Remove from both copies the snapshots that a newer one has replaced, and files that were never finished."""
    for place in (directory, copy_of(directory)):
        snapshot.remove_all_but_newest(disk, place)
        if disk.exists(f"{place}/{journal.STAGED}"):
            disk.remove(f"{place}/{journal.STAGED}")


def verify(disk: Disk, directory: str) -> Iterator[DamagedLog]:
    """What is wrong with either copy of metadata that no broker has open. Changes nothing.

    Stricter than `repair_copies`: a write that a power cut tore is told too.
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
    """Raises DamagedLog where the copy, by itself, is not what was written."""
    known = _read_snapshot(disk, directory)
    path = f"{directory}/{journal.NAME}"
    if not disk.exists(path):
        if known is not None:
            raise DamagedLog(path, 0, f"it is gone, and {snapshot.name_of(known)} is not all there was")
        return _Copy(directory, None, b"", 0, 0, 0)
    data = _content(disk, path)
    if data is None:
        raise DamagedLog(path, 0, "the disk cannot read it")
    content = journal.parse(path, data)
    index = known.image.index if known is not None else 0
    if content.entries:
        first, last = content.entries[0].index, content.entries[-1].index
        if first > index + 1:
            raise DamagedLog(path, 0, f"it starts at entry {first}, and no snapshot reaches there")
        if last < index:
            raise DamagedLog(path, content.end, f"it ends at entry {last}, and the snapshot has entry {index}")
        index = last
    if index < content.committed:
        raise DamagedLog(path, content.end, f"entry {content.committed} had been synced, and it ends at entry {index}")
    return _Copy(directory, known, data, content.end, index, content.committed)


def _read_snapshot(disk: Disk, directory: str) -> Snapshot | None:
    return snapshot.read_newest(disk, directory) if disk.exists(directory) else None


def _repair_snapshot(disk: Disk, first: str, second: str) -> list[DamagedLog]:
    """Where both copies have the same snapshot, one that is damaged is taken from the other, whatever the journals are.

    Snapshots of different names are what a crash left: each of them fits only the journal beside it.
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
    journal.replace_file(disk, f"{target}/{names[0]}", content)
    return [damage]


def _snapshot_damage(disk: Disk, directory: str) -> DamagedLog | None:
    try:
        _read_snapshot(disk, directory)
    except DamagedLog as damage:
        return damage
    return None


def _losses(copies: list[_Copy]) -> list[DamagedLog]:
    """The copies that end before an entry that the other one knows to have been synced in both."""
    committed = max(copy.committed for copy in copies)
    return [
        DamagedLog(copy.journal_path, copy.end, f"entry {committed} had been synced, and it ends at entry {copy.index}")
        for copy in copies
        if copy.index < committed
    ]


def _alterations(copies: list[_Copy]) -> list[DamagedLog]:
    """Ends that a copy would cut off as torn, and that by the other copy are no tear but damage."""
    one, other = copies
    return [
        DamagedLog(copy.journal_path, copy.end, "it differs from the other copy, and not as a torn write does")
        for copy, whole in ((one, other), (other, one))
        if copy.end < len(copy.data) and not _is_torn(copy.data, whole.data[: whole.end], copy.end)
    ]


def _is_torn(data: bytes, whole: bytes, begin: int) -> bool:
    """Whether a power cut may have made `data` from `whole`, of which it has the same bytes before `begin`.

    It leaves each sector as it is or as it was before one of the writes, each of which began where a record does. True
    as well where nothing can be told: the bytes before are not the same, or `whole` ends there.
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
    """Give `target` the files of the best copy, torn end included: who opens them cuts it off both."""
    name = snapshot.name_of(best.known) if best.known is not None else None
    wanted = {journal.NAME: best.data} if best.data else {}
    if name is not None:
        content = _content(disk, f"{best.directory}/{name}")
        assert content is not None, "it has just been read"
        wanted = {name: content, **wanted}
    for file, content in wanted.items():
        if not disk.exists(f"{target}/{file}") or _content(disk, f"{target}/{file}") != content:
            journal.replace_file(disk, f"{target}/{file}", content)
    # Last, so that what was damaged is not taken for sound, with part of it gone, should the power fail before.
    for other in snapshot.names(disk, target):
        if other != name:
            disk.remove(f"{target}/{other}")
    sync_directory(disk, target)


def _contents(disk: Disk, directory: str) -> dict[str, bytes | None]:
    """The journal and the newest snapshot as they are; None for what cannot be read."""
    files = [*snapshot.names(disk, directory)[-1:], journal.NAME]
    return {file: _content(disk, f"{directory}/{file}") for file in files if disk.exists(f"{directory}/{file}")}


def _content(disk: Disk, path: str) -> bytes | None:
    """All of a file; None where the disk cannot read it, which a copy is as good against as damage."""
    with closing(disk.open(path)) as file:
        try:
            return file.pread(file.size(), 0)
        except OSError as error:
            # Raises where that says nothing of the file.
            damage_of(error, path, 0)
            return None
