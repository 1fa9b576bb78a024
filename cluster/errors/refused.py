"""Refused requests, as Kafka error codes."""

from kio.schema.errors import ErrorCode


class Refused(Exception):
    """An expected error: a Kafka error code, and a message for those APIs whose response has one."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(message or code.name)
        self.code = code
        self.message = message
