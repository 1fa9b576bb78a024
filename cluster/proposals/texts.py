"""The longest texts in the metadata: names, hosts, and values of configs."""

from collections.abc import Iterable

from kio.schema.errors import ErrorCode

from cordwood.cluster.errors.refused import Refused

TEXT_BYTES_MAX = 32_000
"""Largest length of one name, host or value: Kafka's older messages have 16 bits for it."""


def check_texts(texts: Iterable[str]) -> None:
    """Raise Refused(INVALID_REQUEST) for a text that is too long."""
    if any(len(text) > TEXT_BYTES_MAX or len(text.encode()) > TEXT_BYTES_MAX for text in texts):
        raise Refused(ErrorCode.invalid_request, f"A string is longer than {TEXT_BYTES_MAX} bytes: send a shorter one.")
