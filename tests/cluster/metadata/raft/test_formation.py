"""Formation of a quorum: an empty voter founds only if all others are empty or founding; one member prevents it."""

import pytest

from cordwood.cluster.metadata.commands import BrokerId
from cordwood.cluster.metadata.raft.formation import decide, is_stuck
from cordwood.cluster.metadata.raft.messages import Standing

EMPTY, FOUNDING, MEMBER, AMNESIAC = Standing
OTHERS = (BrokerId(2), BrokerId(3))


def heard(*standings: Standing | None) -> dict[BrokerId, Standing]:
    return {other: standing for other, standing in zip(OTHERS, standings, strict=True) if standing is not None}


@pytest.mark.parametrize(
    ("standings", "decision"),
    [
        ((EMPTY, EMPTY), FOUNDING),
        ((EMPTY, FOUNDING), FOUNDING),
        ((FOUNDING, FOUNDING), FOUNDING),
        ((EMPTY, None), EMPTY),
        ((FOUNDING, None), EMPTY),
        ((None, None), EMPTY),
        ((MEMBER, None), AMNESIAC),
        ((EMPTY, MEMBER), AMNESIAC),
        ((FOUNDING, MEMBER), AMNESIAC),
        ((AMNESIAC, EMPTY), EMPTY),
        ((AMNESIAC, FOUNDING), EMPTY),
        ((AMNESIAC, AMNESIAC), EMPTY),
    ],
)
def test_an_empty_voter(standings: tuple[Standing | None, Standing | None], decision: Standing) -> None:
    assert decide(EMPTY, OTHERS, heard(*standings)) is decision


@pytest.mark.parametrize("own", [FOUNDING, MEMBER, AMNESIAC])
@pytest.mark.parametrize("other", list(Standing))
def test_who_remembers_something_stays_what_it_is(own: Standing, other: Standing) -> None:
    assert decide(own, OTHERS, heard(other, other)) is own


def test_a_voter_without_others_founds_by_itself() -> None:
    assert decide(EMPTY, (), {}) is FOUNDING


def test_a_cluster_is_lost_when_too_few_can_still_remember() -> None:
    assert is_stuck(MEMBER, OTHERS, heard(AMNESIAC, EMPTY))
    assert is_stuck(AMNESIAC, OTHERS, heard(MEMBER, AMNESIAC))
    assert not is_stuck(MEMBER, OTHERS, heard(AMNESIAC, None))
    assert not is_stuck(MEMBER, OTHERS, heard(AMNESIAC, MEMBER))
    assert not is_stuck(EMPTY, OTHERS, heard(EMPTY, FOUNDING))
