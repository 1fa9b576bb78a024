"""What decoding a batch may cost: the bytes that it unpacks to, and the records that are looked at one by one."""

from cordwood.storage.errors import StorageError

RECORDS_MAX = 1 << 20
"""In one batch. Clients send up to 10,000 (librdkafka), or what fits `batch.size`."""
UNPACKED_BYTES_MAX = 64 << 20
"""Of one batch, out of its compression."""


class OverBudget(StorageError):
    """A batch that costs more to decode than the caller allows. Nothing is known about what is left of it."""


class UnpacksTooLarge(OverBudget):
    """A batch that unpacks to more bytes than the caller allows."""


class Budget:
    """An allowance that several batches may share. It only goes down.

    Memory is bounded by `unpacked_bytes`, time by both: a record costs about as much time as 2 KB of unpacking.
    """

    __slots__ = ("records", "unpacked_bytes")

    def __init__(self, records: int = RECORDS_MAX, unpacked_bytes: int = UNPACKED_BYTES_MAX) -> None:
        self.records, self.unpacked_bytes = records, unpacked_bytes

    def spend_records(self, count: int) -> None:
        """Raises OverBudget where fewer are left."""
        if count > self.records:
            raise OverBudget(f"more than {RECORDS_MAX} records to look at: send smaller batches")
        self.records -= count

    def spend_bytes(self, count: int) -> None:
        """Raises UnpacksTooLarge where fewer are left."""
        if count > self.unpacked_bytes:
            allowed = f"{UNPACKED_BYTES_MAX >> 20} MiB"
            raise UnpacksTooLarge(f"a batch that unpacks to more than {allowed}: send smaller batches")
        self.unpacked_bytes -= count
