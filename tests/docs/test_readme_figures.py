"""The figures of README.md are those of the recorded benchmark."""

from pathlib import Path

from cordwood.bench.measured import MeasuredRun
from cordwood.chaos.results import read

ROOT = Path(__file__).resolve().parents[2]
OURS, KAFKA, SYNCED = "cordwood", "kafka", "kafka, fsync"


def test_the_table_has_the_medians_of_one_broker() -> None:
    measured = MeasuredRun.of(read(ROOT / "docs" / "results" / "performance.jsonl").rows[0])
    [one, *_] = measured.parts
    assert one.replicas == 1

    def median(name: str, system: str, decimals: int = 0) -> str:
        return f"{one.results[name][system].median:,.{decimals}f}"

    def at_rest(system: str) -> str:
        return f"{median('memory at rest', system)} MB of memory, ready in {median('start to ready', system, 1)} s"

    def to_disk_and_memory(name: str, unit: str) -> str:
        ours, unsynced, synced = (median(name, system) for system in (OURS, KAFKA, SYNCED))
        return f"{ours} {unit} to disk | {unsynced} {unit} to memory, {synced} {unit} to disk"

    versions = measured.about["versions"]
    readme = (ROOT / "README.md").read_text()
    for line in (
        f"| one broker at rest¹ | {at_rest(OURS)} | {at_rest(KAFKA)} |",
        f"| one producer, records of 1 KB¹ | {to_disk_and_memory('1 producer, 1 KB', 'MB/s')} |",
        "| 16 connections, one request in flight each¹"
        f" | {to_disk_and_memory('16 connections, 1 in flight', 'records/s')} |",
        f"¹ Version {versions[OURS]} and Kafka {versions[KAFKA]}, one broker",
    ):
        assert line in readme
