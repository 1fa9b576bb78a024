"""Settings of the archive: the object store, its limits, and how soon segments get there."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from cordwood.cluster.config.setting import HOUR_MS, MINUTE_MS, setting, topic_default
from cordwood.cluster.metadata.config_values import LONG_MAX, boolean, long, string
from cordwood.storage.retention import ALL_OF_IT

GIB = 1 << 30

_URL = re.compile(r"(?:s3|gs|az)://[^/@?#\s]+(?:/[^@?#\s]*)?|file:///[^?#]*")


@dataclass(frozen=True, kw_only=True)
class ArchiveSettings:
    """Where sealed segments are archived, and at which rate."""

    archive_url: str = setting(
        "",
        string(),
        "The archive of topics with remote.storage.enable=true: s3://BUCKET/PREFIX, gs://BUCKET/PREFIX,"
        " az://CONTAINER/PREFIX or file:///DIRECTORY, the same for all brokers; empty for none. Credentials come from"
        " the environment or from archive.credentials.file.",
    )
    archive_credentials_file: str = setting(
        "", string(), "A file with the credentials and options of the object store; empty for the environment's."
    )
    archive_cache_bytes: int = setting(
        GIB, long(0), "Disk space for what consumers have recently read from the archive."
    )
    archive_read_bytes_per_second: int = setting(
        LONG_MAX,
        long(1),
        "The largest rate at which this broker downloads what consumers read from the archive. What a replica or a"
        " coordinator needs of it has no limit (KIP-956).",
    )
    archive_upload_bytes_per_second: int = setting(
        LONG_MAX, long(1), "The largest rate at which this broker uploads to the archive."
    )
    archive_grace_ms: int = setting(
        HOUR_MS,
        long(0),
        "How long the objects of a removed segment, and of an upload that was not completed, stay in the archive.",
    )
    archive_roll_ms: int = setting(
        10 * MINUTE_MS,
        long(1),
        "The age at which the active segment of __consumer_offsets and __transaction_state is rolled, so that it can"
        " be archived.",
    )
    archive_compacted_delay_ms: int = setting(
        HOUR_MS,
        long(0),
        "How long a segment of a compacted topic waits for the log cleaner before it is archived as it is.",
    )
    remote_storage_enable: bool = topic_default(
        False, boolean(), "Whether sealed segments are copied to the archive. Requires archive.url."
    )
    log_local_retention_ms: int = topic_default(
        ALL_OF_IT,
        long(ALL_OF_IT),
        "The age at which archived segments are deleted from the brokers' disks; -1 for no limit, -2 for retention.ms.",
    )
    log_local_retention_bytes: int = topic_default(
        ALL_OF_IT,
        long(ALL_OF_IT),
        "The size of a partition on a broker's disk above which its oldest archived segments are deleted there; -1 for"
        " no limit, -2 for retention.bytes.",
    )


def archive_mistakes(settings: ArchiveSettings) -> Iterator[str]:
    """Yield a sentence for each mistake."""
    if not settings.archive_url:
        if settings.remote_storage_enable:
            yield "remote.storage.enable is true, but there is no archive: set archive.url."
        return
    if not _URL.fullmatch(settings.archive_url):
        # The URL may have credentials by mistake: it is not repeated.
        yield (
            "archive.url must be s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX or file:///DIRECTORY,"
            " without credentials and options: put them into the environment or into archive.credentials.file."
        )
