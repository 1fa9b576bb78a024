"""Windows of quotas: use up to the rate, a debt beyond it, and bounded memory."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.cluster.quotas.limiter import FOUND_MAX, WINDOWS_MAX, Limiter
from cordwood.cluster.quotas.limits import PRODUCER_BYTE_RATE, Limit, Quotas, client_limit
from cordwood.cluster.quotas.window import WINDOW_S, Window

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


def test_a_second_of_use_comes_at_once_and_the_rest_is_a_debt() -> None:
    window = Window(100.0, now=0.0)
    window.charge(100.0, 0.0)
    assert window.debt_s(0.0) == 0
    window.charge(50.0, 0.0)
    assert window.debt_s(0.0) == pytest.approx(0.5)
    assert window.debt_s(0.3) == pytest.approx(0.2)
    assert window.debt_s(0.6) == 0


def test_an_idle_group_saves_no_more_than_a_second() -> None:
    window = Window(100.0, now=0.0)
    window.charge(300.0, 1000.0)
    assert window.debt_s(1000.0) == pytest.approx(2.0)


def test_a_debt_stays_owed_at_another_rate() -> None:
    window = Window(100.0, now=0.0)
    window.charge(300.0, 0.0)
    window.change(1000.0, 0.0)
    assert window.debt_s(0.0) == pytest.approx(0.2)


def test_a_higher_rate_saves_up_from_the_change_on() -> None:
    window = Window(10.0, now=0.0)
    window.change(100.0, 5.0)
    window.charge(20.0, 5.0)
    assert window.debt_s(5.0) == pytest.approx(0.1)


@given(
    st.lists(st.tuples(st.floats(0, 5000), st.floats(0, 2)), min_size=1, max_size=60),
    st.floats(1, 1e4),
)
def test_a_client_that_waits_for_its_debt_has_its_rate(uses: list[tuple[float, float]], per_second: float) -> None:
    window, now, used, last = Window(per_second, 0.0), 0.0, 0.0, 0.0
    for amount, pause in uses:
        window.charge(amount, now)
        used, last = used + amount, amount
        now += window.debt_s(now) + pause
        assert used - last <= per_second * (now + WINDOW_S) * (1 + 1e-9) + 1e-6
    assert used <= per_second * (now + WINDOW_S) * (1 + 1e-9) + 1e-6


def test_all_connections_of_a_group_share_its_window() -> None:
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
    for number in range(2 * WINDOWS_MAX):
        flooded.charge("ann", f"client {number}", 1.0, 0.0)
    assert len(flooded._windows) <= WINDOWS_MAX
    assert len(flooded._found) <= FOUND_MAX


def test_idle_groups_are_forgotten_before_those_in_debt() -> None:
    flooded = limiter({EACH: rate(100.0)})
    for number in range(WINDOWS_MAX - 1):
        flooded.charge("ann", f"client {number}", 1.0, 0.0)
    flooded.charge("ann", "in debt", 10_000.0, 0.0)
    flooded.charge("ann", "one more", 1.0, 10.0)
    assert len(flooded._windows) == 2
    assert flooded.debt_s("ann", "in debt", 10.0) > 0
