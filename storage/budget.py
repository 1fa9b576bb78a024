"""Limits on decoding a batch: decompressed bytes, and records and headers that are examined one by one."""

from cordwood.storage.errors import StorageError

RECORDS_PER_STEP = 4096
"""Records of one step, each examined in Python: some 10 ms."""
RECORDS_MAX = 1 << 20
"""Records of one batch. Clients send up to 10,000 (librdkafka), or what fits `batch.size`."""
UNPACKED_BYTES_MAX = 64 << 20
"""Decompressed bytes of one batch."""


class OverBudget(StorageError):
    """A batch that costs more to decode than the caller allows. The rest of the batch is not checked."""


class UnpacksTooLarge(OverBudget):
    """A batch that decompresses to more bytes than the caller allows."""


class Budget:
    """An allowance that several batches may share. The allowance only decreases.

    `unpacked_bytes` bounds memory; both numbers bound time. `records` counts headers, too: one of either costs Python
    about as much as 2 KB of decompression.
    """

    __slots__ = ("records", "unpacked_bytes")

    def __init__(self, records: int = RECORDS_MAX, unpacked_bytes: int = UNPACKED_BYTES_MAX) -> None:
        self.records, self.unpacked_bytes = records, unpacked_bytes

    def spend_records(self, count: int) -> None:
        """Subtract `count` records. Raises OverBudget if fewer are left."""
        if count > self.records:
            raise OverBudget(f"more than {RECORDS_MAX} records and headers to check: send smaller batches")
        self.records -= count

    def spend_bytes(self, count: int) -> None:
        """Subtract `count` bytes. Raises UnpacksTooLarge if fewer are left."""
        if count > self.unpacked_bytes:
            allowed = f"{UNPACKED_BYTES_MAX >> 20} MiB"
            raise UnpacksTooLarge(f"a batch that decompresses to more than {allowed}: send smaller batches")
        self.unpacked_bytes -= count
