"""kcat: records, groups, commits and idempotence. Skipped without kcat."""

import functools
import re
import shutil
import subprocess
import time
from collections.abc import Callable

import pytest
from broker_fixture import RunningBroker
from cutting_proxy import CuttingProxy
from group_members import group_of, kept_partitions_are_not_revoked, three_members_join_crash_and_leave
from requirements import Requirement, check, needs
from sent_records import CODECS, RECORDS
from topics import make_topic, values_of

pytestmark = needs(Requirement.KCAT, shutil.which("kcat") is not None, "there is no kcat on this machine")

# Bytes that do not occur in the records.
RECORD_END, KEY_END = b"\x1e", b"\x1f"
# Lengths precede what they measure; -1 is a null.
FORMAT = r"%p %o %T %K %S %k%s[%h]\x1e"
HEADER = re.compile(rb"(\d+) (\d+) (\d+) (-?\d+) (-?\d+) ")


def kcat(bootstrap: str, *words: str, stdin: bytes = b"") -> bytes:
    done = subprocess.run(["kcat", "-b", bootstrap, *words], input=stdin, capture_output=True, timeout=90, check=False)
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    return done.stdout


@functools.cache
def codecs_built_in() -> str:
    return subprocess.run(["kcat", "-V"], capture_output=True, text=True, check=False).stdout


def printable_records() -> list[tuple[bytes | None, bytes | None]]:
    """Return (key, value) pairs without empty ones, which kcat treats as nulls."""
    odd = bytes(byte for byte in range(256) if byte not in b"\n" + RECORD_END + KEY_END)
    return [
        ((None, b"key %d" % number)[number % 2], (None, b"value %d" % number, odd, b"x" * 300)[number % 4])
        for number in range(RECORDS)
    ]


def parse(output: bytes) -> list[tuple[int, bytes | None, bytes | None, bytes, int]]:
    """Return (offset, key, value, headers, timestamp) of each record that kcat printed."""
    found = []
    at = 0
    while at < len(output):
        head = HEADER.match(output, at)
        assert head is not None, output[at : at + 100]
        _, offset, timestamp, key_size, value_size = (int(number) for number in head.groups())
        at = head.end()
        key, at = _take(output, at, key_size)
        value, at = _take(output, at, value_size)
        end = output.index(RECORD_END, at)
        found.append((offset, key, value, output[at:end], timestamp))
        at = end + 1
    return found


def _take(output: bytes, at: int, size: int) -> tuple[bytes | None, int]:
    return (None, at) if size < 0 else (output[at : at + size], at + size)


@pytest.mark.parametrize("codec", CODECS)
def test_records_come_back_byte_for_byte(shared: RunningBroker, topic: str, codec: str) -> None:
    has_codec = codec in (*CODECS[:1], "gzip") or codec in codecs_built_in()
    check(Requirement.KCAT, has_codec, f"this kcat was built without {codec}")
    sent = printable_records()
    lines = b"".join((key or b"") + KEY_END + (value or b"") + RECORD_END for key, value in sent)
    begin_ms = int(time.time() * 1000)
    words = ["-P", "-t", topic, "-p", "1", "-Z", "-D", r"\x1e", "-K", r"\x1f", "-H", "one=1", "-H", "two=2"]
    kcat(shared.bootstrap, *words, "-X", f"compression.type={codec}", stdin=lines)
    end_ms = int(time.time() * 1000)
    found = parse(kcat(shared.bootstrap, "-C", "-t", topic, "-p", "1", "-o", "beginning", "-e", "-q", "-f", FORMAT))
    assert [(key, value) for _, key, value, _, _ in found] == sent
    assert [offset for offset, *_ in found] == list(range(RECORDS))
    assert {headers for *_, headers, _ in found} == {b"[one=1,two=2]"}
    assert all(begin_ms <= timestamp <= end_ms for *_, timestamp in found)


def test_a_group_of_three(shared: RunningBroker, group_topic: str, send_to_all: Callable[[], dict[int, int]]) -> None:
    with group_of("kcat", shared.bootstrap, group_topic) as group:
        three_members_join_crash_and_leave(group, send_to_all)


def test_a_cooperative_group_keeps_its_partitions(shared: RunningBroker, group_topic: str) -> None:
    with group_of("kcat", shared.bootstrap, group_topic, is_cooperative=True) as group:
        kept_partitions_are_not_revoked(group)


def test_committed_offsets_survive_a_restart(broker: RunningBroker) -> None:
    topic = make_topic(broker.bootstrap, "numbers", 1)
    kcat(broker.bootstrap, "-P", "-t", topic, stdin=b"".join(b"%d\n" % number for number in range(200)))
    # If the broker dies before it has stored the first consumer's departure, the second waits for the session timeout.
    session = ["-X", "session.timeout.ms=6000", "-X", "heartbeat.interval.ms=1000"]
    words = ["-q", "-X", "auto.offset.reset=earliest", *session, "-c", "100", "-G", "g", topic]
    assert kcat(broker.bootstrap, *words) == b"".join(b"%d\n" % number for number in range(100))
    broker.kill()
    broker.start()
    assert kcat(broker.bootstrap, *words) == b"".join(b"%d\n" % number for number in range(100, 200))


def test_an_idempotent_producer_whose_connections_are_cut(
    behind_a_proxy: tuple[RunningBroker, CuttingProxy],
) -> None:
    _broker, proxy = behind_a_proxy
    settings = {
        "enable.idempotence": "true",
        "max.in.flight": "5",
        "batch.num.messages": "20",
        "retry.backoff.ms": "20",
        "reconnect.backoff.ms": "10",
        "reconnect.backoff.max.ms": "50",
    }
    words = [word for key, value in settings.items() for word in ("-X", f"{key}={value}")]
    numbers = [b"%d" % number for number in range(10_000)]
    proxy.cut_every(3, 15)
    # -E: a lost connection does not end kcat.
    kcat(proxy.bootstrap, "-E", "-P", "-t", "numbers", "-p", "0", *words, stdin=b"\n".join(numbers))
    proxy.heal()
    assert proxy.cuts >= 10
    assert values_of(proxy.bootstrap, "numbers", 0) == numbers
