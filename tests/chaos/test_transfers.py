"""Money transfers: the orders of a client, and readers whose balances do not add up."""

from collections.abc import Iterable

import pytest

from cordwood.chaos.transfers import (
    ACCOUNTS,
    ReadEntry,
    ReadTransfers,
    TransferEntry,
    TransferOrders,
    decode,
    encode,
)

CLIENT = 4


def whole(transaction: int, payer: int, payee: int, amount: int, *balances: int) -> tuple[TransferEntry, TransferEntry]:
    """Return the two entries of a transfer, with the balances that they state."""
    return (
        TransferEntry(transaction, payer, -amount, balances[0]),
        TransferEntry(transaction, payee, amount, balances[1]),
    )


FIRST = whole(0, 1, 2, 10, -10, 10)
SECOND = whole(1, 2, 3, 4, 6, 4)
THIRD = whole(2, 1, 3, 5, -15, 9)


def found(*polls: Iterable[TransferEntry]) -> dict[str, int]:
    """Return the anomalies of a consumer that got these entries poll by poll."""
    transfers = ReadTransfers("consumer-0")
    transfers.read(ReadEntry(CLIENT, batch, entry) for batch, entries in enumerate(polls) for entry in entries)
    return {anomaly.kind: anomaly.count for anomaly in transfers.anomalies()}


def test_an_entry_survives_its_encoding_and_damage_is_no_entry() -> None:
    assert decode(encode(SECOND[0])) == SECOND[0]
    assert decode(encode(SECOND[0])[1:]) is None


def test_orders_are_the_same_in_each_life_of_a_client() -> None:
    once, again = TransferOrders("1/0", 6), TransferOrders("1/0", 6)
    for order in range(50):
        payer, payee = once.entries(order)
        assert payer.amount == -payee.amount < 0
        assert once.partition_of(payer.account) != once.partition_of(payee.account)
        assert {payer.account, payee.account} <= set(range(ACCOUNTS))
        once.seek(order + 1)
    again.seek(50)
    assert once.entries(7) == again.entries(7)
    again.seek(49)
    assert (again.next, again.entries(9) == once.entries(9)) == (49, False)
    assert TransferOrders("1/1", 6).entries(0) != TransferOrders("1/0", 6).entries(0)


def test_balances_follow_the_applied_orders_only() -> None:
    orders, read = TransferOrders("1/0", 6), ReadTransfers("consumer-0")
    written = []
    for transaction in range(30):
        entries = orders.entries(transaction)
        if transaction % 3:
            written += [ReadEntry(CLIENT, transaction, entry) for entry in entries]
            orders.seek(orders.next + 1)
    read.read(written)
    assert (list(read.anomalies()), read.applied) == ([], {CLIENT: 20})


@pytest.mark.parametrize(
    "polls",
    [
        (FIRST, SECOND, THIRD),
        ((*FIRST, *SECOND, *THIRD),),
        # Partitions become visible one after the other.
        ((FIRST[1], SECOND[0]), (FIRST[0], THIRD[0]), (SECOND[1], THIRD[1])),
    ],
    ids=["whole", "at once", "by partitions"],
)
def test_transfers_that_are_read_once_and_whole_are_no_anomaly(polls: tuple[tuple[TransferEntry, ...], ...]) -> None:
    assert found(*polls) == {}


@pytest.mark.parametrize(
    ("polls", "expected"),
    [
        # Half of a transfer is never visible; nothing else builds on it.
        ((FIRST, SECOND[:1]), {"torn-transaction": 1}),
        # Half of it is lost, and later entries state balances that include it.
        ((FIRST[1:], SECOND, THIRD), {"lost-update": 1, "wrong-sum": 1, "torn-transaction": 1}),
        # A whole transfer is lost.
        ((FIRST, THIRD), {"lost-update": 1, "wrong-sum": 1}),
        # An aborted transfer is visible: the client repeats the order from the same balances.
        ((FIRST, whole(1, 2, 3, 4, 6, 4), whole(2, 2, 3, 4, 6, 4)), {"lost-update": 2}),
        # One record of an aborted transfer is visible.
        ((FIRST, SECOND[:1], whole(2, 2, 3, 4, 6, 4)), {"lost-update": 1, "wrong-sum": 1, "torn-transaction": 1}),
        # A transfer is read again.
        ((FIRST, FIRST), {"lost-update": 2}),
        # The entries of an account are read in another order.
        ((FIRST, THIRD, SECOND), {"lost-update": 2, "wrong-sum": 2}),
        # The amounts of the two entries are not those of one transfer.
        ((FIRST[:1], (FIRST[1]._replace(amount=11, balance=11),)), {"lost-update": 1, "wrong-sum": 1}),
    ],
    ids=["torn", "half lost", "lost", "aborted", "half aborted", "twice", "out of order", "other amount"],
)
def test_transfers_that_do_not_add_up_are_found(
    polls: tuple[tuple[TransferEntry, ...], ...], expected: dict[str, int]
) -> None:
    assert found(*polls) == expected


def test_the_proof_names_the_client_the_poll_and_the_entry() -> None:
    transfers = ReadTransfers("consumer-1")
    transfers.read([ReadEntry(CLIENT, 3, FIRST[0])])
    [anomaly] = transfers.anomalies()
    assert "consumer-1" in anomaly.sentence
    [operation] = anomaly.operations
    assert (operation["client"], operation["poll"], operation["account"], operation["amount"]) == (CLIENT, 3, 1, -10)
