"""Fixtures of the archive's tests: one S3 server for all, a bucket and a faulty proxy for each test."""

from collections.abc import Iterator
from itertools import count

import pytest
from faulty_store import FaultyS3, faulty_proxy, new_bucket, running_s3

from cordwood.archive.obstore_store import ObstoreStore, open_store

_numbers = count(1)


@pytest.fixture(scope="session")
def s3_server() -> Iterator[tuple[str, int]]:
    """Yield the address of an S3 server."""
    with running_s3() as address:
        yield address


@pytest.fixture
def s3(s3_server: tuple[str, int]) -> Iterator[FaultyS3]:
    """Yield a proxy in front of the server, and a bucket."""
    with faulty_proxy(s3_server) as proxy:
        proxy.bucket = f"shed-{next(_numbers)}"
        new_bucket(s3_server, proxy.bucket)
        yield proxy


@pytest.fixture
def store(s3: FaultyS3) -> ObstoreStore:
    """Return the store below a prefix of the test's bucket, with short time-outs."""
    return open_store(f"s3://{s3.bucket}/some/prefix", s3.credentials, timeout_s=1.0, backoff_s=0.001)
