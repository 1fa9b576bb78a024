"""A voter's files, loaded and checked at startup: its standing, newest snapshot and journal.

A voter keeps one copy: its peers have the others (docs/adr/0010). Damaged files are kept in quarantine for the
operator, and the voter continues as an amnesiac.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from cordwood.cluster.metadata import journal, snapshot
from cordwood.cluster.metadata.image import Image
from cordwood.cluster.metadata.journal import Journal, JournalContent
from cordwood.cluster.metadata.mirror import copy_of
from cordwood.cluster.metadata.raft.log import RaftLog
from cordwood.cluster.metadata.raft.messages import Standing
from cordwood.cluster.metadata.raft.voter_log import VoterLog
from cordwood.cluster.metadata.snapshot import Snapshot
from cordwood.storage import checkpoint
from cordwood.storage.disk import Disk, sync_directory
from cordwood.storage.errors import DamagedLog, damage_of

STANDING = "standing"
DAMAGED = "damaged-"
DAMAGED_KEPT = 3

_MARKS = {b"voter": Standing.MEMBER, b"amnesiac": Standing.AMNESIAC}


class WrongMetadata(Exception):
    """Metadata that this voter must not use. The message says what the operator has to do."""


@dataclass(frozen=True, slots=True)
class Stored:
    """The loaded state. `image` is the snapshot's; entries of the log after it are to be applied once committed."""

    standing: Standing
    log: RaftLog
    image: Image
    image_term: int
    damage: list[DamagedLog]


def read(disk: Disk, directory: str) -> Stored:
    """Load the metadata, and move damaged files aside. Blocks. Raises WrongMetadata for a single voter's metadata."""
    for parent in disk.make_directories(directory):
        sync_directory(disk, parent)
    if disk.exists(copy_of(directory)):
        raise WrongMetadata(
            f"{directory} has the metadata of a cluster of one broker, which cannot join another quorum: set"
            " controller.quorum.voters to this broker alone and add other voters afterwards, or give it an empty"
            " log.dirs."
        )
    # A killed process may have left entries only in the page cache. Sync them before they count.
    sync_directory(disk, directory)
    try:
        return _read(disk, directory, [])
    except DamagedLog as damage:
        write_standing(disk, directory, Standing.AMNESIAC)
        put_aside(disk, directory)
        return _read(disk, directory, [damage])


def is_of_quorum(disk: Disk, directory: str) -> bool:
    """Return whether a voter or a learner has written its metadata there."""
    return disk.exists(f"{directory}/{STANDING}") and not disk.exists(copy_of(directory))


def write_standing(disk: Disk, directory: str, standing: Standing) -> None:
    """Write a standing. Durable on return. Blocks. Founding and member differ only by the contents of the log."""
    mark = b"voter" if standing.may_vote else b"amnesiac"
    checkpoint.write(disk, f"{directory}/{STANDING}", mark)


def put_aside(disk: Disk, directory: str) -> None:
    """Move all files but the standing to a quarantine directory, and keep the newest three of these. Blocks."""
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


def check_fit(path: str, known: Snapshot | None, content: JournalContent) -> None:
    """Raise DamagedLog if there is a gap between snapshot and journal, or if committed entries are missing."""
    index = known.image.index if known is not None else 0
    if content.entries and content.entries[0].index > index + 1:
        raise DamagedLog(
            path,
            0,
            f"the journal starts at entry {content.entries[0].index}, and no snapshot covers the entries before it",
        )
    end = max(index, content.entries[-1].index if content.entries else 0)
    if end < content.committed:
        raise DamagedLog(
            path, content.end, f"entry {content.committed} is committed, but the journal ends at entry {end}"
        )


def verify(disk: Disk, directory: str) -> Iterator[DamagedLog]:
    """Yield the damage in a voter's metadata that no broker has open. Changes nothing.

    Stricter than `read`: a torn write is reported too.
    """
    path = f"{directory}/{journal.NAME}"
    try:
        _check_whole(disk, directory)
        journal.check(path, content_of(disk, path))
    except DamagedLog as damage:
        yield damage


def content_of(disk: Disk, path: str) -> bytes:
    """Return a whole file. Raises DamagedLog if the disk cannot read it, OutOfResources, DiskFailed."""
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
    # The power may have failed between the last sync and its mark. The file is synced now.
    written.synced(written.end, written.committed)
    snapshot.remove_all_but_newest(disk, directory)
    log = _log(written, known)
    standing = mark or Standing.EMPTY
    if mark is Standing.MEMBER and not (written.term or log.end):
        standing = Standing.FOUNDING
    return Stored(standing, log, known.image if known else Image(), known.term if known else 0, damage)


def _check_whole(disk: Disk, directory: str) -> tuple[Standing | None, Snapshot | None]:
    """Return the standing and the newest snapshot. Raises DamagedLog if they and the journal do not fit together."""
    mark, known = _mark(disk, directory), snapshot.read_newest(disk, directory)
    path = f"{directory}/{journal.NAME}"
    if not disk.exists(path):
        if known is not None or mark is Standing.MEMBER:
            raise DamagedLog(path, 0, "the file is missing")
        return mark, known
    content = journal.parse(path, content_of(disk, path))
    if mark is None and (known is not None or content.entries or content.term):
        raise DamagedLog(f"{directory}/{STANDING}", 0, "the file is missing")
    check_fit(path, known, content)
    return mark, known


def _log(written: Journal, known: Snapshot | None) -> RaftLog:
    """Return the log.

    The base of the log is the entry before the journal's first, or the first one if the snapshot has it.
    """
    if known is None:
        return RaftLog(written)
    voter_log = VoterLog(known.image.index, known.image.voters)
    index, term = known.image.index, known.term
    if len(written) and written[0].index <= index:
        position = index - written[0].index
        if position < len(written) and written[position].term == term:
            return RaftLog(written, written[0].index, written[0].term, voter_log)
        # An image was installed, and the journal that it replaces was not dropped yet.
        written.drop_before(len(written))
    return RaftLog(written, index, term, voter_log)


def _mark(disk: Disk, directory: str) -> Standing | None:
    path = f"{directory}/{STANDING}"
    payload = checkpoint.read(disk, path)
    if payload is not None and payload not in _MARKS:
        raise DamagedLog(path, 0, f"{payload!r} is not a standing")
    return None if payload is None else _MARKS[payload]
