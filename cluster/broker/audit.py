"""The audit log of a broker, from its settings."""

from collections.abc import Callable

from cordwood.cluster.config.listeners import http_requires_login, listeners_of
from cordwood.cluster.config.settings import Settings
from cordwood.cluster.security.audit.files import AuditFiles
from cordwood.cluster.security.audit.log import NO_AUDIT, AuditLog, NoAudit
from cordwood.replication.tasks import RunBlocking
from cordwood.storage.disk import Disk

DIRECTORY = "audit"


def audit_log(
    settings: Settings, disk: Disk, run_blocking: RunBlocking, wall_clock: Callable[[], int]
) -> AuditLog | NoAudit:
    """Return the audit log, not started yet; NO_AUDIT if the settings ask for none."""
    if not _is_wanted(settings):
        return NO_AUDIT

    def open_files() -> AuditFiles:
        directory = settings.audit_log_dir or f"{settings.log_dirs[0]}/{DIRECTORY}"
        return AuditFiles(disk, directory, settings.audit_log_file_bytes, settings.audit_log_files)

    return AuditLog(open_files, settings.node_id, run_blocking, wall_clock)


def _is_wanted(settings: Settings) -> bool:
    if settings.audit_log_enable != "auto":
        return settings.audit_log_enable == "on"
    if settings.authorizer_class_name or http_requires_login(settings):
        return True
    return any(listener.protocol != "PLAINTEXT" for listener in listeners_of(settings))
