"""The response encoder: kio schemas, encoded in steps and in chunks, with array items created lazily."""

import dataclasses
import functools
import io
import struct
from collections.abc import Callable
from operator import itemgetter
from typing import Any

from kio.serial import entity_writer
from kio.serial._serialize import get_field_writer, get_writer

from cordwood.cluster.kafka.schema import entity_in, has_arrays, is_nullable, is_tuple
from cordwood.cluster.kafka.wire import uvarint
from cordwood.storage.steps import Steps

ANSWER_BYTES_MAX = 32 << 20
CHUNK_BYTES = 256 << 10
"""Approximate chunk size of a response: a longer buffer would be copied as it grows."""

_INT = struct.Struct(">i").pack
_NULL, _PRESENT = b"\xff", b"\x01"

Write = Callable[[io.BytesIO, Any], None]
StepwiseWrite = Callable[["Answer", Any], Steps[None]]


class AnswerTooLarge(Exception):
    """A response exceeds ANSWER_BYTES_MAX."""


class Answer:
    """The encoded bytes of one response."""

    __slots__ = ("buffer", "chunks", "size")

    def __init__(self) -> None:
        self.chunks: list[bytes] = []
        self.buffer = io.BytesIO()
        self.size = 0
        """Total size of the chunks."""

    def item_written(self) -> None:
        """Begin a new chunk if the current one is full. Raises AnswerTooLarge."""
        if self.buffer.tell() >= CHUNK_BYTES:
            self.cut()

    def cut(self) -> None:
        """Move the buffered bytes to the chunks. Raises AnswerTooLarge."""
        self.chunks.append(self.buffer.getvalue())
        self.size += len(self.chunks[-1])
        self.buffer = io.BytesIO()
        if self.size > ANSWER_BYTES_MAX:
            raise AnswerTooLarge(f"a response of more than {ANSWER_BYTES_MAX} bytes")


def writing(schema: Any, head: bytes, message: Any, answer: Answer) -> Steps[list[bytes]]:
    """Encode a frame into `answer`: its length, `head`, the message. Return the chunks. Raises AnswerTooLarge.

    `answer.size` grows with every finished chunk.
    """
    if has_arrays(schema):
        yield from _writer(schema)(answer, message)
    else:
        entity_writer(schema)(answer.buffer, message)
    answer.cut()
    first = _INT(len(head) + answer.size) + head
    # A short response is one chunk. A long one, such as a large assignment, is not copied for it.
    return [first + answer.chunks[0]] if answer.size <= CHUNK_BYTES else [first, *answer.chunks]


def prepare_writer(schema: Any) -> None:
    """Make what `writing` makes of a schema at its first use."""
    if has_arrays(schema):
        _writer(schema)
    else:
        entity_writer(schema)


@functools.cache
def _writer(schema: Any) -> StepwiseWrite:
    """Return a stepwise writer. Tagged fields with their default values are not written (KIP-482)."""
    fields, tagged = [], []
    for field in dataclasses.fields(schema):
        if "tag" in field.metadata:
            tag = field.metadata["tag"], field.name, field.default, get_field_writer(field, True, False, True)
            tagged.append(tag)
        else:
            fields.append((field.name, *_field_writer(schema, field)))
    tagged.sort(key=itemgetter(0))
    flexible = bool(schema.__flexible__)

    def write(answer: Answer, message: Any) -> Steps[None]:
        for name, at_once, stepwise in fields:
            if stepwise is None:
                at_once(answer.buffer, getattr(message, name))
            else:
                yield from stepwise(answer, getattr(message, name))
        if flexible:
            present = [field for field in tagged if getattr(message, field[1]) != field[2]]
            answer.buffer.write(uvarint(len(present)))
            for tag, name, _, at_once in present:
                content = io.BytesIO()
                at_once(content, getattr(message, name))
                answer.buffer.write(uvarint(tag) + uvarint(content.tell()) + content.getvalue())

    return write


def _field_writer(schema: Any, field: "dataclasses.Field[Any]") -> tuple[Write, StepwiseWrite | None]:
    flexible, entity = bool(schema.__flexible__), entity_in(field.type)
    if not is_tuple(field.type):
        inner = _writer(entity) if entity is not None and has_arrays(entity) else None
        stepwise = _nullable(inner) if inner is not None and is_nullable(field.type) else inner
        return get_field_writer(field, flexible, False, False), stepwise
    one = get_writer(field.metadata["kafka_type"], flexible, False) if entity is None else entity_writer(entity)
    inner = _writer(entity) if entity is not None and has_arrays(entity) else None
    return one, _array_writer(one, inner, flexible)


def _nullable(inner: StepwiseWrite) -> StepwiseWrite:
    """Return a writer of a nullable structure, which has a marker byte in front: negative for null (KIP-893)."""

    def write(answer: Answer, message: Any) -> Steps[None]:
        answer.buffer.write(_NULL if message is None else _PRESENT)
        if message is not None:
            yield from inner(answer, message)

    return write


def _array_writer(one: Write, inner: StepwiseWrite | None, flexible: bool) -> StepwiseWrite:
    def write(answer: Answer, items: Any) -> Steps[None]:
        count = -1 if items is None else len(items)
        answer.buffer.write(uvarint(count + 1) if flexible else _INT(count))
        for item in items or ():
            if inner is None:
                one(answer.buffer, item)
            else:
                yield from inner(answer, item)
            answer.item_written()
            yield

    return write
