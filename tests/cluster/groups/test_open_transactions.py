"""Pending values of ongoing transactions: which are committed, replaced or removed, and what remains."""

from cordwood.cluster.coordination.open_transactions import OpenTransactions, WrittenValue

KEY, OTHER = "key", "other"


def written(*values: tuple[int, str, str, int]) -> OpenTransactions[str, str]:
    """Return these values by producer id, key, value and position."""
    found: OpenTransactions[str, str] = OpenTransactions()
    for producer_id, key, value, position in values:
        found.write(producer_id, key, WrittenValue(value, position))
    return found


def places(found: OpenTransactions[str, str]) -> list[tuple[int, str]]:
    return [(producer_id, key) for producer_id, key, _ in found.values()]


def committed(found: OpenTransactions[str, str], producer_id: int, *, is_commit: bool) -> dict[str, WrittenValue[str]]:
    """End a transaction, and return what counts from now on."""
    return {key: written for key, written in found.end(producer_id, is_commit=is_commit) if written is not None}


def test_a_commit_returns_the_last_value_of_each_key() -> None:
    found = written((1, KEY, "a", 5), (1, KEY, "b", 6), (1, OTHER, "c", 7), (2, KEY, "d", 8))
    assert places(found) == [(1, KEY), (1, OTHER), (2, KEY)]
    assert set(found) == {KEY, OTHER}
    assert committed(found, 1, is_commit=True) == {KEY: WrittenValue("b", 6), OTHER: WrittenValue("c", 7)}
    assert (places(found), set(found)) == ([(2, KEY)], {KEY})
    assert committed(found, 2, is_commit=False) == {}
    assert (places(found), list(found)) == ([], [])


def test_the_end_of_a_transaction_that_is_not_known_changes_nothing() -> None:
    found = written((1, KEY, "a", 5))
    assert committed(found, 2, is_commit=True) == {}
    assert places(found) == [(1, KEY)]


def test_a_later_value_replaces_a_pending_one_and_an_earlier_does_not() -> None:
    found = written((1, KEY, "a", 5), (2, KEY, "b", 7))
    found.replaced(KEY, 6)
    assert KEY in found
    assert committed(found, 1, is_commit=True) == {}
    assert committed(found, 2, is_commit=True) == {KEY: WrittenValue("b", 7)}


def test_of_two_transactions_that_commit_a_key_the_later_value_stays() -> None:
    found = written((1, KEY, "a", 5), (2, KEY, "b", 7))
    assert committed(found, 2, is_commit=True) == {KEY: WrittenValue("b", 7)}
    assert committed(found, 1, is_commit=True) == {}


def test_a_removal_drops_earlier_values_and_transactions_without_others() -> None:
    found = written((1, KEY, "a", 5), (2, KEY, "b", 7), (1, OTHER, "c", 8))
    found.removed(KEY, 6)
    assert places(found) == [(1, OTHER), (2, KEY)]
    found.removed(OTHER, 9)
    assert places(found) == [(2, KEY)]


def test_what_comes_while_a_transaction_ends_counts_as_after_it() -> None:
    found = written((1, KEY, "a", 5), (1, OTHER, "b", 6), (2, KEY, "c", 7))
    ending = found.end(1, is_commit=True)
    assert next(ending) == (OTHER, WrittenValue("b", 6))
    assert committed(found, 2, is_commit=True) == {KEY: WrittenValue("c", 7)}
    assert KEY in found
    assert list(ending) == [(KEY, None)]
    assert list(found) == []


def test_the_next_transaction_of_a_producer_is_another_one_while_the_former_ends() -> None:
    found = written((1, KEY, "a", 5))
    ending = found.end(1, is_commit=False)
    found.write(1, KEY, WrittenValue("b", 6))
    assert list(ending) == [(KEY, None)]
    assert KEY in found
    assert committed(found, 1, is_commit=True) == {KEY: WrittenValue("b", 6)}
