"""Use of groups of clients: which of them share a limit, changed limits, and bounded memory."""

import pytest

from cordwood.cluster.quotas.limiter import BUCKETS_MAX, FOUND_MAX, Limiter
from cordwood.cluster.quotas.limits import PRODUCER_BYTE_RATE, Limit, Quotas, client_limit

ANN = (("user", "ann"),)
EACH = (("client-id", None), ("user", None))


def limiter(quotas: Quotas) -> Limiter:
    def find(quotas: Quotas, user: str, client_id: str) -> Limit | None:
        return client_limit(quotas, PRODUCER_BYTE_RATE, user, client_id)

    made = Limiter(find)
    made.follow(quotas)
    return made


def rate(number: float) -> dict[str, float]:
    return {PRODUCER_BYTE_RATE: number}


def test_all_connections_of_a_group_share_its_limit() -> None:
    shared = limiter({ANN: rate(100.0)})
    assert shared.charge("ann", "one", 100.0, 0.0) == 0
    assert shared.charge("ann", "two", 100.0, 0.0) == pytest.approx(1.0)
    assert shared.charge("bob", "one", 1e9, 0.0) == 0


def test_each_group_of_a_default_has_its_own() -> None:
    each = limiter({EACH: rate(100.0)})
    assert each.charge("ann", "one", 200.0, 0.0) == pytest.approx(1.0)
    assert each.charge("ann", "two", 100.0, 0.0) == 0
    assert each.charge("bob", "one", 100.0, 0.0) == 0


def test_a_changed_quota_is_in_force_at_once_and_use_stays_counted() -> None:
    changed = limiter({ANN: rate(100.0)})
    changed.charge("ann", "one", 200.0, 0.0)
    changed.follow({ANN: rate(10.0)})
    assert changed.debt_s("ann", "one", 0.0) == pytest.approx(10.0)
    changed.follow({})
    assert changed.debt_s("ann", "one", 0.0) == 0


def test_what_was_put_back_is_given_back() -> None:
    given_back = limiter({ANN: rate(100.0)})
    given_back.charge("ann", "one", 150.0, 0.0)
    given_back.charge("ann", "one", -150.0, 0.0)
    assert given_back.charge("ann", "one", 100.0, 0.0) == 0


def test_any_number_of_client_ids_takes_bounded_memory() -> None:
    flooded = limiter({EACH: rate(100.0)})
    flooded.charge("ann", "in debt", 1000.0, 0.0)
    for number in range(2 * BUCKETS_MAX):
        flooded.charge("ann", f"client {number}", 1.0, 0.0)
    assert len(flooded._buckets) <= BUCKETS_MAX
    assert len(flooded._found) <= FOUND_MAX


def test_idle_groups_are_forgotten_before_those_in_debt() -> None:
    flooded = limiter({EACH: rate(100.0)})
    for number in range(BUCKETS_MAX - 1):
        flooded.charge("ann", f"client {number}", 1.0, 0.0)
    flooded.charge("ann", "in debt", 10_000.0, 0.0)
    flooded.charge("ann", "one more", 1.0, 10.0)
    assert len(flooded._buckets) == 2
    assert flooded.debt_s("ann", "in debt", 10.0) > 0
