"""ListTransactions (66): the transactional ids that this broker coordinates, filtered (KIP-664).

Version notes: 1 adds the shortest duration of a transaction (KIP-994); 2 a regular expression for the ids (KIP-1152).
"""

from kio.schema.errors import ErrorCode
from kio.schema.list_transactions.v2 import ListTransactionsRequest, ListTransactionsResponse
from kio.schema.list_transactions.v2.response import TransactionState as TransactionRow

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import NO_THROTTLE, Call
from cordwood.cluster.kafka.rights import DESCRIBE, TRANSACTIONAL_ID, Right, Rights
from cordwood.cluster.kafka.rows import rows
from cordwood.cluster.transactions.coordinator import TransactionListing
from cordwood.cluster.transactions.states import TransactionState

KEY = ApiKey.LIST_TRANSACTIONS
RIGHTS: Rights = (Right(DESCRIBE, TRANSACTIONAL_ID, "other ids are left out of the list"),)

_STATES = {state.value: state for state in TransactionState}


async def handle(request: ListTransactionsRequest, call: Call) -> ListTransactionsResponse:
    states, unknown = set[TransactionState](), list[str]()
    async for name in call.turns.each(request.state_filters):
        if name in _STATES:
            states.add(_STATES[name])
        else:
            unknown.append(name)
    producer_ids = {producer_id async for producer_id in call.turns.each(request.producer_id_filters)}
    listed: list[TransactionListing] = []
    code = ErrorCode.none
    try:
        found = call.services.transactions.list(
            states,
            frozenset(producer_ids),
            request.duration_filter,
            request.transactional_id_pattern or "",
        )
        if states or not unknown:
            listed = [
                row
                async for row in call.turns.each(found)
                if row is not None and call.may_see(DESCRIBE, TRANSACTIONAL_ID, row.transactional_id)
            ]
    except Refused as refusal:
        code = refusal.code
    return ListTransactionsResponse(
        throttle_time=NO_THROTTLE,
        error_code=code,
        unknown_state_filters=tuple(unknown),
        transaction_states=rows(_row, listed),
    )


def _row(listed: TransactionListing) -> TransactionRow:
    return TransactionRow(
        transactional_id=listed.transactional_id,
        producer_id=listed.producer_id,
        transaction_state=listed.state.value,
    )
