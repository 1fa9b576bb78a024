"""Transaction coordinators, as Spark's sink asks them."""

import pytest

from cordwood.spark.client.coordinators import SparkCoordinators
from cordwood.spark.client.settings import Address, ClientSettings


def test_a_write_ends_once_its_transactions_are_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [["mine", "another"], ["mine"], ["another"]]
    coordinators = SparkCoordinators(ClientSettings((Address("127.0.0.1", 1),)))
    monkeypatch.setattr(coordinators, "_list", lambda _states: answers.pop(0))
    coordinators.wait_for_markers(["mine"])
    assert answers == []
