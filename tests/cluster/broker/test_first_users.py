"""The first users of a cluster are added when it is founded, and at no other time."""

from collections.abc import Iterator

import pytest
from admin_fixture import AdminFixture

from cordwood.cluster.broker.first_users import add_first_users
from cordwood.cluster.metadata.commands import AlterScramCredentials, ScramDeletion
from cordwood.cluster.metadata.credentials import ScramMechanism
from cordwood.cluster.security.sasl.first_users import first_users

ADMIN, EVE = (first_users([f"{name}=secret"], bytes) for name in ("admin", "eve"))


@pytest.fixture
def new() -> Iterator[AdminFixture]:
    """Yield a cluster that no broker has registered with."""
    fixture = AdminFixture(brokers=0)
    yield fixture
    fixture.close()


def names(cluster: AdminFixture) -> set[str]:
    return {name for name, _ in cluster.image.scram_credentials}


def test_a_new_cluster_gets_its_first_users(new: AdminFixture) -> None:
    new.runner.run(add_first_users(new.voter, ADMIN))
    assert set(new.image.scram_credentials) == {("admin", kind) for kind in ScramMechanism}


def test_without_first_users_nothing_is_proposed(new: AdminFixture) -> None:
    index = new.image.index
    new.runner.run(add_first_users(new.voter, ()))
    assert new.image.index == index


def test_a_cluster_with_users_gets_none(new: AdminFixture) -> None:
    new.runner.run(add_first_users(new.voter, ADMIN))
    new.runner.run(add_first_users(new.voter, EVE))
    assert names(new) == {"admin"}


def test_a_cluster_with_brokers_gets_none_even_without_users(new: AdminFixture) -> None:
    """A restart with the option of the first start brings no removed user back."""
    new.runner.run(add_first_users(new.voter, ADMIN))
    new.register(1)
    new.propose(AlterScramCredentials((), tuple(ScramDeletion("admin", kind) for kind in ScramMechanism)))
    new.runner.run(add_first_users(new.voter, ADMIN))
    assert names(new) == set()
