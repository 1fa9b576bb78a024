"""Any sequence of requests to one transactional id, with writes that fail, in both versions of the protocol."""

from uuid import UUID

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.transactions.formats import decode_value, encode_value
from cordwood.cluster.transactions.shard import PartitionNames
from cordwood.cluster.transactions.states import COMPLETE, DECIDED, PREVIOUS, TransactionState
from cordwood.cluster.transactions.transaction import (
    EPOCH_MAX,
    AddedPartition,
    ProducerIdNeeded,
    Transaction,
)
from cordwood.storage.types import ProducerIdAndEpoch

NOW_MS = 1_700_000_000_000
TOPIC = UUID(int=5)
PARTITIONS = [AddedPartition(TOPIC, "flights", partition) for partition in range(3)]
S = TransactionState


class AnyTransaction(RuleBasedStateMachine):
    """Clients remember what they were answered, old producers too. `decided` has each transaction's decisions."""

    @initialize(epoch=st.sampled_from([0, 1, EPOCH_MAX - 3, EPOCH_MAX - 2, EPOCH_MAX - 1]))
    def create(self, epoch: int) -> None:
        self.ids = 100
        self.now = Transaction.create(self.ids, 60_000, NOW_MS).initialize(60_000, None, NOW_MS)._replace(epoch=epoch)
        self.handed_out = [self.now.producer]
        self.transaction = 0
        self.decided: dict[int, set[bool]] = {}
        self.fences: list[ProducerIdAndEpoch] = []

    def spare(self) -> int:
        self.ids += 1
        return self.ids

    def take(self, new: Transaction, is_written: bool) -> bool:
        """Take a transition, unless its write fails."""
        if new is self.now:
            return True
        assert self.now.state in PREVIOUS[new.state] or (self.now.state, new.state) == (S.ONGOING, S.PREPARE_ABORT)
        assert new.epoch <= EPOCH_MAX
        same_id = new.producer_id == self.now.producer_id
        assert not same_id or new.epoch in (self.now.epoch, self.now.epoch + 1), "an epoch is raised by one"
        if not is_written:
            return False
        if new.state is S.ONGOING and self.now.state is not S.ONGOING:
            self.transaction += 1
        if new.state in DECIDED:
            if self.now.state is not S.ONGOING:
                self.transaction += 1
            self.decided.setdefault(self.transaction, set()).add(new.is_commit)
        if new.state in COMPLETE:
            assert self.decided[self.transaction] == {new.state is S.COMPLETE_COMMIT}
        self.now = new
        return True

    @rule(data=st.data(), is_written=st.booleans())
    def init(self, data: st.DataObject, is_written: bool) -> None:
        expected = data.draw(st.none() | st.sampled_from(self.handed_out))
        before = self.now
        try:
            try:
                new = self.now.initialize(60_000, expected, NOW_MS)
            except ProducerIdNeeded:
                new = self.now.initialize(60_000, expected, NOW_MS, self.spare())
        except Refused:
            return
        if self.take(new, is_written):
            if new.state in DECIDED:
                self.fences.append(new.producer)
            else:
                if expected is None:
                    assert new.producer != before.producer, "a new producer gets an epoch of its own"
                self.handed_out.append(new.producer)

    @rule(data=st.data(), is_v2=st.booleans(), is_written=st.booleans(), is_pending=st.booleans())
    def add(self, data: st.DataObject, is_v2: bool, is_written: bool, is_pending: bool) -> None:
        producer = data.draw(st.sampled_from(self.handed_out))
        partitions = data.draw(st.lists(st.sampled_from(PARTITIONS), min_size=1))
        try:
            new = self.now.add(producer, partitions, NOW_MS, is_v2=is_v2, is_pending=is_pending)
        except Refused:
            return
        assert producer == self.now.producer
        self.take(new, is_written)

    @rule(data=st.data(), commit=st.booleans(), is_v2=st.booleans(), is_written=st.booleans(), is_pending=st.booleans())
    def end(self, data: st.DataObject, commit: bool, is_v2: bool, is_written: bool, is_pending: bool) -> None:
        producer = data.draw(st.sampled_from(self.handed_out))
        how = {"commit": commit, "is_v2": is_v2, "is_pending": is_pending}
        try:
            try:
                new = self.now.end(producer, NOW_MS, **how)
            except ProducerIdNeeded:
                new = self.now.end(producer, NOW_MS, **how, spare_id=self.spare())
        except Refused:
            return
        if new is self.now:
            assert self.now.state is (S.COMPLETE_COMMIT if commit else S.COMPLETE_ABORT)
        if self.take(new, is_written):
            self.handed_out.append(self.now.next_producer)

    @precondition(lambda self: self.now.state is S.ONGOING)
    @rule(is_written=st.booleans())
    def time_out(self, is_written: bool) -> None:
        fenced = self.now.fence(NOW_MS)
        if self.take(fenced, is_written):
            self.fences.append(fenced.producer)

    @precondition(lambda self: self.now.state in DECIDED)
    @rule()
    def complete(self) -> None:
        self.take(self.now.complete(NOW_MS), True)

    @rule()
    def fail_over(self) -> None:
        names = PartitionNames()
        restored = decode_value(
            encode_value(self.now), lambda topic_id, topic, index: names.intern(topic_id or TOPIC, topic, index)
        )
        order = sorted(self.now.partitions)
        assert restored == self.now._replace(partitions=tuple(order))
        self.now = restored

    @invariant()
    def no_transaction_is_both_committed_and_aborted(self) -> None:
        if hasattr(self, "decided"):
            assert all(len(decisions) == 1 for decisions in self.decided.values())

    @invariant()
    def fencing_epochs_are_never_handed_out(self) -> None:
        if hasattr(self, "fences"):
            assert not {*self.fences} & {*self.handed_out}
            assert all(0 <= producer.epoch < EPOCH_MAX for producer in self.handed_out)


AnyTransaction.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestAnyTransaction = AnyTransaction.TestCase
