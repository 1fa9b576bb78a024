"""Trimming of the heap, with glibc: the pages of freed blocks below a block in use go back to the system."""

import psutil

from cordwood.cluster.resources.heap import trim

BLOCK_BYTES, BLOCKS = 100_000, 1_000
"""Blocks of a size that glibc serves from the heap, and not by mmap."""


def test_freed_blocks_below_a_used_one_go_back_to_the_system() -> None:
    process = psutil.Process()
    blocks = [bytes([1]) * BLOCK_BYTES for _ in range(BLOCKS)]
    used = process.memory_info().rss
    del blocks[:-1]
    trim()
    assert process.memory_info().rss < used - BLOCK_BYTES * BLOCKS // 2
