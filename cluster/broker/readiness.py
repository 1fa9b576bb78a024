"""Readiness of this broker's log directories for writes."""

from collections.abc import Iterable

from cordwood.replication.log_directory import LogDirectory


def why_not_writable(directories: Iterable[LogDirectory], headroom_bytes: int) -> str | None:
    """Return a sentence why no log directory takes writes, and what to do; None if at least one does.

    With several disks a broker uses those that work; the metrics report the others. `headroom_bytes` is
    log.dir.headroom.bytes. The free space comes from the file systems, which is quick.
    """
    reasons = [_why_not(directory, headroom_bytes) for directory in directories]
    return None if None in reasons else reasons[0]


def _why_not(directory: LogDirectory, headroom_bytes: int) -> str | None:
    if directory.error is not None:
        return (
            f"The log directory {directory.path} has failed ({directory.error}), and requests for its partitions"
            " are refused: replace the disk and restart this broker."
        )
    free_bytes = directory.free_bytes()
    if free_bytes is None or (free_bytes >= headroom_bytes and not directory.refuses_with(free_bytes)):
        return None
    return (
        f"The log directory {directory.path} has no room for more records ({free_bytes} bytes are free,"
        f" log.dir.headroom.bytes is {headroom_bytes}): lower retention.bytes, delete a topic, or enlarge"
        " its file system."
    )
