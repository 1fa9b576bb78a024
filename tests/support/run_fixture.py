"""A synthetic chaos run for report tests: acknowledged, unacknowledged and lost records, and faults."""

from typing import Self

import numpy as np

from cordwood.chaos.checks import check
from cordwood.chaos.history_builder import HistoryBuilder
from cordwood.chaos.report.page import page
from cordwood.chaos.report.series import Answers, series
from cordwood.chaos.report.summary import RunReport, Span

NS = 10**9
PARTITIONS = 2
ACK_S = 0.004


class ToldRun:
    """One producer that sends a record to each partition twice a second, and one consumer. Times in seconds."""

    def __init__(self, seconds: int = 60) -> None:
        self.seconds = seconds
        self._faults: list[Span] = []
        self._lost: set[int] = set()
        self._silent: tuple[float, float] = (0.0, 0.0)

    def struck(self, fault: str, what: str, start_s: float, end_s: float) -> Self:
        """Add a fault, from its start to its end."""
        self._faults.append(Span(fault, what, start_s, end_s))
        return self

    def silent(self, start_s: float, end_s: float) -> Self:
        """Acknowledge no record that is sent in this interval."""
        self._silent = (start_s, end_s)
        return self

    def lost(self, sequence: int) -> Self:
        """Have this record acknowledged but never delivered, though the consumer reads past its offset."""
        self._lost.add(sequence)
        return self

    def page(self, sentence: str = "no anomaly") -> str:
        """Return the report."""
        history = HistoryBuilder()
        sent = [
            (sequence, sequence % PARTITIONS, sequence / (2 * PARTITIONS))
            for sequence in range(self.seconds * 2 * PARTITIONS)
        ]
        answered = [(partition, at_s) for _, partition, at_s in sent if not self._silent[0] <= at_s < self._silent[1]]
        for partition in range(PARTITIONS):
            history.assign(0, partition, 0)
        offsets = [0] * PARTITIONS
        for sequence, partition, at_s in sent:
            send = history.invoke(0, sequence, partition, int(at_s * NS))
            if (partition, at_s) in answered:
                history.ok(send, offsets[partition], int((at_s + ACK_S) * NS))
                if sequence not in self._lost:
                    history.poll(0, partition, offsets[partition], sequence, int((at_s + 2 * ACK_S) * NS))
                offsets[partition] += 1
        answers = Answers(
            partition=np.array([partition for partition, _ in answered]),
            sent_s=np.array([at_s for _, at_s in answered]),
            answered_s=np.array([at_s + ACK_S for _, at_s in answered]),
            is_acknowledged=np.ones(len(answered), dtype=bool),
        )
        return page(
            RunReport(
                seed=7,
                commit="0f1e2d3c4b5a",
                sentence=sentence,
                facts={"acknowledged": str(len(answered))},
                settings={"target": "local"},
                series=series(answers, PARTITIONS, self.seconds),
                partitions=PARTITIONS,
                faults=self._faults,
                anomalies=check(history.build()),
            )
        )
