"""Receipts of queues: what a broker writes is read by any broker, and nothing else is."""

from uuid import UUID

import pytest

from cordwood.cluster.operations.queue_receipts import CHARS, Receipt

RECEIPT = Receipt(3, 7, UUID(int=42), 5, 1 << 40, b"sixteen bytes !!")


def test_a_receipt_is_read_as_it_was_written() -> None:
    assert len(RECEIPT.text) == CHARS
    assert Receipt.of(RECEIPT.text) == RECEIPT


@pytest.mark.parametrize(
    "text",
    ["", "x" * CHARS, "é" * CHARS, "-" * CHARS, RECEIPT.text[:-1], RECEIPT.text + "A", RECEIPT.text.replace("A", " ")],
)
def test_other_text_is_no_receipt(text: str) -> None:
    assert Receipt.of(text) is None
