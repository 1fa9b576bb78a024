"""What kafka-python's suite wants of a service that is running already: its address, and nothing to start or stop."""


class ExternalService:
    """A broker that somebody else started."""

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.port = port

    def open(self) -> None:
        """Nothing to open."""

    def close(self) -> None:
        """Nothing to close."""

    def dump_logs(self) -> None:
        """Nothing to dump: the log is where the broker was started."""


SpawnedService = ExternalService
"""Imported by the suite, and used only where it starts a broker itself, which it has no files for."""
