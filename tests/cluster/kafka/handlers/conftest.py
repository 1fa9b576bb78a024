"""What the stories of the admin handlers begin with."""

from collections.abc import Iterator

import pytest
from admin_fixture import AdminFixture


@pytest.fixture
def admin() -> Iterator[AdminFixture]:
    """One broker, as it is with no settings given."""
    fixture = AdminFixture()
    yield fixture
    fixture.close()
