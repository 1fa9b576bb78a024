"""A replacement for the service module of kafka-python's suite: an external broker's address, with nothing to start."""


class ExternalService:
    """A broker that another process has started."""

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.port = port

    def open(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""

    def dump_logs(self) -> None:
        """Do nothing: the log belongs to the process that started the broker."""


SpawnedService = ExternalService
"""Imported by the suite. The suite uses it only to start a broker itself, for which it has no files."""
