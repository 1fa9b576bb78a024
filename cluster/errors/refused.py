"""Refused requests, as Kafka error codes."""

from kio.schema.errors import ErrorCode

MESSAGE_CHARS_MAX = 500


class Refused(Exception):
    """An expected error: a Kafka error code, and a message for those APIs whose response has one.

    A message is cut to MESSAGE_CHARS_MAX: it may quote a name of 32,767 characters.
    """

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        if message is not None and len(message) > MESSAGE_CHARS_MAX:
            message = message[: MESSAGE_CHARS_MAX - 1] + "…"
        super().__init__(message or code.name)
        self.code = code
        self.message = message
