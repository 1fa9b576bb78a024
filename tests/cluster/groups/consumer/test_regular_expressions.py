"""Subscriptions by regular expression, which the coordinator resolves (KIP-848)."""

import pytest
from consumer_group_scenario import ConsumerGroupScenario
from kio.schema.errors import ErrorCode

from cordwood.cluster.groups.consumer.topics import REGEX_INTERVAL_MS_MIN


@pytest.fixture
def group() -> ConsumerGroupScenario:
    return ConsumerGroupScenario({"flights": 2, "flights-late": 2, "planes": 2})


def test_a_member_reads_the_topics_that_match_as_a_whole(group: ConsumerGroupScenario) -> None:
    group.join("anna", regex="flights.*")
    assert {topic for topic, _ in group.owns("anna")} == {"flights", "flights-late"}
    group.beat("anna", regex="lights")
    group.settle()
    assert group.owns("anna") == set()


def test_names_and_an_expression_add_up(group: ConsumerGroupScenario) -> None:
    group.join("anna", "planes", regex="flights")
    assert {topic for topic, _ in group.owns("anna")} == {"flights", "planes"}


def test_new_topics_are_found(group: ConsumerGroupScenario) -> None:
    group.join("anna", regex="flights.*")
    group.settle()
    group.change_topic("flights-new", 2)
    group.now_ms += REGEX_INTERVAL_MS_MIN
    group.settle()
    assert {topic for topic, _ in group.owns("anna")} == {"flights", "flights-late", "flights-new"}
    group.change_topic("flights-late", 0)
    group.now_ms += REGEX_INTERVAL_MS_MIN
    group.settle()
    assert {topic for topic, _ in group.owns("anna")} == {"flights", "flights-new"}


def test_many_new_topics_are_looked_at_together(group: ConsumerGroupScenario) -> None:
    group.join("anna", regex="flights.*")
    group.settle()
    epoch = group.consumers.group_epoch
    for number in range(5):
        group.change_topic(f"flights-{number}", 1)
        group.beat("anna")
    assert group.consumers.group_epoch == epoch
    group.now_ms += REGEX_INTERVAL_MS_MIN
    group.beat("anna")
    assert group.consumers.group_epoch == epoch + 1


def test_a_topic_that_the_member_may_not_describe_is_left_out(group: ConsumerGroupScenario) -> None:
    group.join("anna", regex="flights.*", may_describe=lambda name: name != "flights-late")
    assert {topic for topic, _ in group.owns("anna")} == {"flights"}


def test_rights_are_looked_at_again_from_time_to_time(group: ConsumerGroupScenario) -> None:
    group.join("anna", regex="flights.*", may_describe=lambda name: name != "flights-late")
    group.settle()
    group.now_ms += group.context.settings.consumer_regex_refresh_interval_ms
    group.settle()
    assert {topic for topic, _ in group.owns("anna")} == {"flights", "flights-late"}


@pytest.mark.parametrize("regex", ["(", "a**", "(?=x)", r"(a)\1", "x{2000}", "a" * 2000])
def test_an_expression_that_is_none_is_refused(group: ConsumerGroupScenario, regex: str) -> None:
    assert group.join("anna", regex=regex).code is ErrorCode.invalid_regular_expression


def test_a_group_has_a_bounded_number_of_expressions(group: ConsumerGroupScenario) -> None:
    for number in range(100):
        group.join(f"m{number}", regex=f"flights{number}?")
    assert group.join("anna", regex="planes").code is ErrorCode.invalid_regular_expression
    assert group.join("anna", regex="flights7?").code is ErrorCode.none


def test_an_expression_goes_with_its_last_member(group: ConsumerGroupScenario) -> None:
    group.join("anna", regex="flights.*")
    group.join("ben", regex="flights.*")
    group.settle()
    group.leave("anna")
    group.settle("ben")
    assert group.consumers.reads("flights")
    group.leave("ben")
    assert not group.consumers.reads("flights")
    assert 16 not in {int.from_bytes(key[:2], "big") for key in group.log}


def test_resolved_topics_survive_a_failover(group: ConsumerGroupScenario) -> None:
    group.join("anna", regex="flights.*")
    group.settle()
    epoch = group.consumers.group_epoch
    group.reload()
    assert group.consumers.reads("flights-late")
    group.settle()
    assert group.consumers.group_epoch == epoch


def test_many_topics_are_matched_in_time_slices(group: ConsumerGroupScenario) -> None:
    for number in range(1000):
        group.change_topic(f"flights-{number}", 1)
    group.holds_computations = True
    assert group.send("anna", regex="flights-.*", rebalance_timeout_ms=1000, owned={}) is None
    assert len(group.computes) == 1
    group.holds_computations = False
    group.finish_computations()
    (reply,) = group.replies.values()
    assert sum(map(len, reply.assignment.values())) == 1002  # type: ignore[union-attr]
