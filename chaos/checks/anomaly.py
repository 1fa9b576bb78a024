"""Anomalies: the class, the number of cases, and the operations that prove the first cases."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from cordwood.chaos.checks.columns import Rows
from cordwood.chaos.history import Operation, Table

Proof = tuple[Operation, ...]

CASES_SHOWN = 10


@dataclass(frozen=True, slots=True)
class Anomaly:
    """One class of anomaly in a history. `operations` are those of the first CASES_SHOWN cases, case after case."""

    kind: str
    sentence: str
    operations: tuple[Operation, ...]
    count: int


def accuse(kind: str, meaning: str, cases: Rows, prove: Callable[[int], Proof]) -> Iterator[Anomaly]:
    """Yield the anomaly of this class, if there are cases. Only the first CASES_SHOWN of them are proved."""
    if len(cases):
        times = "once" if len(cases) == 1 else f"{len(cases)} times"
        operations = tuple(operation for case in cases[:CASES_SHOWN] for operation in prove(int(case)))
        yield Anomaly(kind, f"{meaning}: {times}.", operations, len(cases))


def accuse_pairs(kind: str, meaning: str, table: Table, earlier: Rows, later: Rows) -> Iterator[Anomaly]:
    """Yield the anomaly as `accuse` does, where each case is two rows of one table."""
    next_of = dict(zip(earlier[:CASES_SHOWN].tolist(), later[:CASES_SHOWN].tolist(), strict=True))
    yield from accuse(kind, meaning, earlier, lambda row: (table.operation(row), table.operation(next_of[row])))


def count_by_kind(anomalies: Iterable[Anomaly]) -> dict[str, int]:
    """Return the number of cases per class, by name."""
    counts: dict[str, int] = {}
    for anomaly in anomalies:
        counts[anomaly.kind] = counts.get(anomaly.kind, 0) + anomaly.count
    return dict(sorted(counts.items()))
