"""The repair of a log with another replica's batches, as the broker does it, without the network."""

from collections.abc import Callable

from log_fixture import ROOT, LogFixture

from cordwood.storage.errors import DamagedLog
from cordwood.storage.scrub import verify, view_of
from cordwood.storage.segment import Segment
from cordwood.storage.segment_rebuild import Missing, SegmentRebuild

STAGING = f"{ROOT}/repair"

ReadOther = Callable[[int, int], bytes]
"""Returns batches of the other replica from an offset on, up to another one."""


def refetch(log: LogFixture, read: ReadOther) -> None:
    """Repair all segments."""
    while (segment := damaged_segment(log)) is not None:
        rebuild = rebuilt(log, segment, read)
        while rebuild.is_behind():
            rebuild.read_on()
        assert rebuild.replace_segment()


def damaged_segment(log: LogFixture) -> Segment | None:
    """Return the first segment that the scrubber finds damaged, once the indexes that it compares with are on disk."""
    log.checkpoint()
    for damage in verify(view_of(log.log)):
        if isinstance(damage, DamagedLog) and damage.path.endswith(".log"):
            return next(one for one in log.log.segments if one.path == damage.path)
    return None


def rebuilt(log: LogFixture, segment: Segment, read: ReadOther) -> SegmentRebuild:
    """Return the whole segment, which is not in place yet."""
    log.log.roll_if_active(segment)
    log.disk.make_directories(STAGING)
    rebuild = SegmentRebuild(log.log, segment, STAGING)
    for step in rebuild.steps():
        while isinstance(step, Missing) and rebuild.due < step.end:
            rebuild.fill(step, read(rebuild.due, step.end))
    return rebuild
