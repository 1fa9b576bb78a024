"""What a voter has on its disk, read back at the start: its standing, its newest snapshot, its journal; or damage.

A voter keeps one copy: its peers have the others (docs/adr/0010). Damage is put aside for the operator, and the voter
goes on as one that has forgotten what it promised.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from cordwood.cluster.metadata import journal, snapshot
from cordwood.cluster.metadata.image import Image
from cordwood.cluster.metadata.journal import Content, Journal
from cordwood.cluster.metadata.mirror import copy_of
from cordwood.cluster.metadata.raft.log import RaftLog
from cordwood.cluster.metadata.raft.messages import Standing
from cordwood.cluster.metadata.snapshot import Snapshot
from cordwood.storage import checkpoint
from cordwood.storage.disk import Disk, sync_directory
from cordwood.storage.errors import DamagedLog, damage_of

STANDING = "standing"
DAMAGED = "damaged-"
DAMAGED_KEPT = 3

_MARKS = {b"voter": Standing.MEMBER, b"amnesiac": Standing.AMNESIAC}


class WrongMetadata(Exception):
    """Metadata that this voter may not use: a sentence that says what to do about it."""


@dataclass(frozen=True, slots=True)
class Stored:
    """`image` is that of the snapshot; what the log has behind it is to be applied as far as it is committed."""

    standing: Standing
    log: RaftLog
    image: Image
    image_term: int
    damage: list[DamagedLog]


def read(disk: Disk, directory: str) -> Stored:
    """What there is, after putting aside what is damaged. Blocks. Raises WrongMetadata for a single broker's."""
    for parent in disk.make_directories(directory):
        sync_directory(disk, parent)
    if disk.exists(copy_of(directory)):
        raise WrongMetadata(
            f"{directory} has the metadata of a broker that had no peers, which cannot join a quorum:"
            " start it without controller.quorum.voters, or give it an empty log.dirs."
        )
    # What a killed process left unsynced is about to be believed.
    sync_directory(disk, directory)
    try:
        return _read(disk, directory, [])
    except DamagedLog as damage:
        write_standing(disk, directory, Standing.AMNESIAC)
        put_aside(disk, directory)
        return _read(disk, directory, [damage])


def write_standing(disk: Disk, directory: str, standing: Standing) -> None:
    """On disk when this returns. Blocks. Founding and member differ by what is in the log."""
    mark = b"voter" if standing.may_vote else b"amnesiac"
    checkpoint.write(disk, f"{directory}/{STANDING}", mark)


def put_aside(disk: Disk, directory: str) -> None:
    """Move all but the standing to a directory of its own, of which the newest few are kept. Blocks."""
    names = [name.removeprefix(DAMAGED) for name in disk.list_directory(directory) if name.startswith(DAMAGED)]
    numbers = sorted(int(name) for name in names if name.isdecimal())
    place = f"{directory}/{DAMAGED}{numbers[-1] + 1 if numbers else 1}"
    disk.make_directories(place)
    for name in [journal.NAME, *snapshot.names(disk, directory)]:
        if disk.exists(f"{directory}/{name}"):
            disk.rename(f"{directory}/{name}", f"{place}/{name}")
    sync_directory(disk, place)
    for number in numbers[: -(DAMAGED_KEPT - 1)]:
        disk.remove_tree(f"{directory}/{DAMAGED}{number}")
    sync_directory(disk, directory)


def check_fit(path: str, known: Snapshot | None, content: Content) -> None:
    """Raises DamagedLog where a journal and its snapshot leave a gap, or miss what is known to be committed."""
    index = known.image.index if known is not None else 0
    if content.entries and content.entries[0].index > index + 1:
        raise DamagedLog(path, 0, f"it starts at entry {content.entries[0].index}, and no snapshot reaches there")
    end = max(index, content.entries[-1].index if content.entries else 0)
    if end < content.committed:
        raise DamagedLog(path, content.end, f"entry {content.committed} is committed, and it ends at entry {end}")


def verify(disk: Disk, directory: str) -> Iterator[DamagedLog]:
    """What is wrong with a voter's metadata that no broker has open. Changes nothing.

    Stricter than `read`: a write that a power cut tore is told too.
    """
    path = f"{directory}/{journal.NAME}"
    try:
        _check_whole(disk, directory)
        journal.check(path, content_of(disk, path))
    except DamagedLog as damage:
        yield damage


def content_of(disk: Disk, path: str) -> bytes:
    """All of a file. Raises DamagedLog where the disk cannot read it, OutOfResources, DiskFailed."""
    file = disk.open(path)
    try:
        return file.pread(file.size(), 0)
    except OSError as error:
        raise damage_of(error, path, 0) from error
    finally:
        file.close()


def _read(disk: Disk, directory: str, damage: list[DamagedLog]) -> Stored:
    mark, known = _check_whole(disk, directory)
    written = Journal.open(disk, f"{directory}/{journal.NAME}")
    # The power may have failed between the last sync and the mark that says so: what is there now is synced.
    written.synced(written.end, written.committed)
    snapshot.remove_all_but_newest(disk, directory)
    log = _log(written, known)
    standing = mark or Standing.EMPTY
    if mark is Standing.MEMBER and not (written.term or log.end):
        standing = Standing.FOUNDING
    return Stored(standing, log, known.image if known else Image(), known.term if known else 0, damage)


def _check_whole(disk: Disk, directory: str) -> tuple[Standing | None, Snapshot | None]:
    """The standing and the newest snapshot. Raises DamagedLog where they and the journal do not fit together."""
    mark, known = _mark(disk, directory), snapshot.read_newest(disk, directory)
    path = f"{directory}/{journal.NAME}"
    if not disk.exists(path):
        if known is not None or mark is Standing.MEMBER:
            raise DamagedLog(path, 0, "it is gone")
        return mark, known
    content = journal.parse(path, content_of(disk, path))
    if mark is None and (known is not None or content.entries or content.term):
        raise DamagedLog(f"{directory}/{STANDING}", 0, "it is gone")
    check_fit(path, known, content)
    return mark, known


def _log(written: Journal, known: Snapshot | None) -> RaftLog:
    """The log on its base: the entry before the journal's first, or that first one itself if the snapshot has it."""
    if known is None:
        return RaftLog(written)
    index, term = known.image.index, known.term
    if len(written) and written[0].index <= index:
        position = index - written[0].index
        if position < len(written) and written[position].term == term:
            return RaftLog(written, written[0].index, written[0].term)
        # An image was installed, and the log it takes the place of was still there.
        written.drop_before(len(written))
    return RaftLog(written, index, term)


def _mark(disk: Disk, directory: str) -> Standing | None:
    path = f"{directory}/{STANDING}"
    payload = checkpoint.read(disk, path)
    if payload is not None and payload not in _MARKS:
        raise DamagedLog(path, 0, f"{payload!r} is no standing")
    return None if payload is None else _MARKS[payload]
