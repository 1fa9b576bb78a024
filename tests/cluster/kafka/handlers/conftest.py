"""Fixtures for the tests of admin handlers."""

from collections.abc import Iterator

import pytest
from admin_fixture import AdminFixture


@pytest.fixture
def admin() -> Iterator[AdminFixture]:
    """Yield one broker with default settings."""
    fixture = AdminFixture()
    yield fixture
    fixture.close()
