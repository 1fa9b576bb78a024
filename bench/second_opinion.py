"""Java's ProducerPerformance, the tool of LinkedIn's figures: the same line with Kafka's own client."""

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from cordwood.bench.generator import LoadFailed
from cordwood.bench.lines import LineOutcome, LoadLine
from cordwood.bench.machine import cpu_seconds

LIMIT_S = 300.0
# 3000000 records sent, 612994.7 records/sec (58.46 MB/sec), 301.42 ms avg latency, …, 512 ms 99.9th.
SENT = re.compile(r"^(?P<records>\d+) records sent, (?P<rate>[\d.]+) records/sec .*? 99\.9th\.$", re.MULTILINE)
# Near those of our generator: with its default batches of 16 KB the client would measure requests.
SETTINGS = {"linger.ms": "5", "batch.size": str(256 << 10), "buffer.memory": str(64 << 20)}


def run(line: LoadLine, bootstrap: str, pids: Sequence[int], libs: Path) -> LineOutcome:
    """Run one producer, from the jars in `libs`. Raises LoadFailed with the end of its output."""
    cpu_before = cpu_seconds(pids)
    settings = {"bootstrap.servers": bootstrap, "acks": line.acks, **SETTINGS}
    try:
        done = subprocess.run(
            [
                *("java", "-Xmx512M", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", f"{libs}/*"),
                *("org.apache.kafka.tools.ProducerPerformance", "--topic", line.topic, "--throughput", "-1"),
                *("--num-records", str(line.records), "--record-size", str(line.record_bytes)),
                *("--producer-props", *(f"{key}={value}" for key, value in settings.items())),
            ],
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise LoadFailed(f"{line.name}: no end after {LIMIT_S:.0f} s.") from None
    figures = sent(done.stdout)
    if done.returncode != 0 or figures is None:
        raise LoadFailed(f"{line.name}: {(done.stdout + done.stderr).strip()[-1000:]}")
    records, rate = figures
    return LineOutcome(records, line.records - records, records / rate, {}, {}, cpu_seconds(pids) - cpu_before)


def sent(output: str) -> tuple[int, float] | None:
    """Return records, and records a second, of the last line; the lines before it cover some seconds each."""
    figures = SENT.search(output)
    return (int(figures["records"]), float(figures["rate"])) if figures else None
