"""`cordwood produce` and `cordwood consume` against a broker."""

import json
import signal
import time

import pytest
from broker_fixture import RunningBroker, wait_until
from command import cordwood, in_process, start_cordwood
from confluent_kafka import Producer

from cordwood.cluster.cli.exits import ExitCode
from cordwood.cluster.cli.produce import POLL_S


@pytest.fixture
def topic(broker: RunningBroker, request: pytest.FixtureRequest) -> str:
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)
    assert in_process("topic", "create", name, bootstrap=broker.bootstrap).exit_code == ExitCode.OK
    return name


def produce(broker: RunningBroker, topic: str, lines: bytes, *words: str) -> str:
    outcome = cordwood("produce", topic, *words, stdin=lines, bootstrap=broker.bootstrap)
    assert outcome.exit_code == ExitCode.OK, outcome.stderr
    return outcome.text


def consume(broker: RunningBroker, topic: str, *words: str) -> list[bytes]:
    outcome = cordwood("consume", topic, *words, bootstrap=broker.bootstrap)
    assert outcome.exit_code == ExitCode.OK, outcome.stderr
    return outcome.lines


def test_lines_come_back_as_they_went_in(broker: RunningBroker, topic: str) -> None:
    assert produce(broker, topic, b"one\n\xff\xfe\n\nfour") == "4 of 4 records acknowledged\n"
    assert consume(broker, topic) == [b"one", b"\xff\xfe", b"", b"four"]


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_carries_them(broker: RunningBroker, topic: str, compression: str) -> None:
    lines = [b"line %d" % number for number in range(5000)]
    produce(broker, topic, b"\n".join(lines), "--compression", compression)
    assert consume(broker, topic) == lines


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_kind_of_acknowledgement_is_counted(broker: RunningBroker, topic: str, acks: str) -> None:
    said = produce(broker, topic, b"a\nb\n", "--acks", acks)
    assert said.startswith("2 of 2 records " + ("sent" if acks == "0" else "acknowledged"))


def test_keys_go_in_and_out(broker: RunningBroker, topic: str) -> None:
    produce(broker, topic, b"k1:v1\nk2:v:2\n:v3\n", "-K", ":")
    assert consume(broker, topic, "-K", "=") == [b"k1=v1", b"k2=v:2", b"=v3"]


def test_a_line_without_its_key_stops_it_and_what_went_before_is_counted(broker: RunningBroker, topic: str) -> None:
    outcome = cordwood("produce", topic, "-K", ":", stdin=b"k:v\nnothing\n", bootstrap=broker.bootstrap)
    assert outcome.exit_code == ExitCode.FAILED
    assert "line 2" in outcome.stderr
    assert outcome.text == "1 of 1 records acknowledged\n"


def test_json_has_everything_and_base64_where_text_will_not_do(broker: RunningBroker, topic: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(topic, b"v", "ké", headers=[("h", b"\xff"), ("n", None)], timestamp=1234567890123)
    producer.produce(topic, None, b"\x80")
    assert producer.flush(30) == 0
    first, second = (json.loads(line) for line in consume(broker, topic, "--json"))
    assert first == {
        "topic": topic, "partition": 0, "offset": 0, "timestamp": 1234567890123, "key": "ké", "value": "v",
        "headers": [{"name": "h", "value_base64": "/w=="}, {"name": "n", "value": None}],
    }  # fmt: skip
    assert (second["key_base64"], second["value"], second["offset"]) == ("gA==", None, 1)


def test_reading_may_begin_anywhere(broker: RunningBroker, topic: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for second in range(10):
        producer.produce(topic, str(second).encode(), timestamp=(1_700_000_000 + second) * 1000)
    assert producer.flush(30) == 0
    assert consume(broker, topic, "--from", "7") == [b"7", b"8", b"9"]
    assert consume(broker, topic, "--from", "2023-11-14T22:13:26Z") == [b"6", b"7", b"8", b"9"]
    assert consume(broker, topic, "--from", "@1700000008500") == [b"9"]
    assert consume(broker, topic, "--from", "3", "--max", "2") == [b"3", b"4"]
    for nothing in ("latest", "1000", "2030-01-01"):
        assert consume(broker, topic, "--from", nothing) == []


def test_one_partition_may_be_chosen(broker: RunningBroker) -> None:
    in_process("topic", "create", "wide", "-p", "3", bootstrap=broker.bootstrap)
    produce(broker, "wide", b"".join(b"%d:%d\n" % (number, number) for number in range(60)), "-K", ":")
    parts = [consume(broker, "wide", "--partition", str(partition)) for partition in range(3)]
    assert all(parts)
    assert sorted(int(line) for part in parts for line in part) == list(range(60))
    missing = cordwood("consume", "wide", "--partition", "3", bootstrap=broker.bootstrap)
    assert missing.exit_code == ExitCode.USAGE


def test_a_group_goes_on_where_it_stopped(broker: RunningBroker, topic: str) -> None:
    produce(broker, topic, b"a\nb\nc\n")
    assert consume(broker, topic, "--group", "g", "--max", "2") == [b"a", b"b"]
    produce(broker, topic, b"d\n")
    assert consume(broker, topic, "--group", "g") == [b"c", b"d"]
    assert consume(broker, topic, "--group", "g") == []


def test_an_interrupted_wait_for_acknowledgements_still_says_how_many_came(
    broker: RunningBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupted(Producer):
        def flush(self, timeout: float | None = None) -> int:
            if timeout == POLL_S:
                raise KeyboardInterrupt
            return super().flush(timeout)

    monkeypatch.setattr("confluent_kafka.Producer", Interrupted)
    assert in_process("produce", topic, bootstrap=broker.bootstrap).text == "0 of 0 records acknowledged\n"


def test_following_prints_what_comes_and_ends_with_a_signal(broker: RunningBroker, topic: str) -> None:
    produce(broker, topic, b"before\n")
    tail = start_cordwood("consume", topic, "--follow", bootstrap=broker.bootstrap)
    assert tail.stdout is not None
    assert tail.stdout.readline() == b"before\n"
    produce(broker, topic, b"after\n")
    assert tail.stdout.readline() == b"after\n"
    tail.send_signal(signal.SIGINT)
    _, said = tail.communicate(timeout=30)
    assert (tail.returncode, said) == (130, b"")


def test_a_closed_pipe_ends_it_quietly(broker: RunningBroker, topic: str) -> None:
    produce(broker, topic, b"".join(b"line %d\n" % number for number in range(50_000)))
    reading = start_cordwood("consume", topic, bootstrap=broker.bootstrap)
    assert reading.stdout is not None
    assert reading.stderr is not None
    assert reading.stdout.readline() == b"line 0\n"
    reading.stdout.close()
    assert reading.wait(30) == ExitCode.OK
    assert reading.stderr.read() == b""


def test_an_unknown_topic_is_named_with_what_to_do(broker: RunningBroker) -> None:
    outcome = cordwood("consume", "none", bootstrap=broker.bootstrap)
    assert outcome.exit_code == ExitCode.FAILED
    assert "cordwood topic create none" in outcome.stderr
    assert "none" not in in_process("topic", "list", bootstrap=broker.bootstrap).text.split()


def test_too_large_a_record_fails_by_name_and_the_others_go_through(broker: RunningBroker) -> None:
    in_process("topic", "create", "small", "-c", "max.message.bytes=1000", bootstrap=broker.bootstrap)
    produce(broker, "small", b"x\n")
    outcome = cordwood("produce", "small", "--json", stdin=b"y" * 5000 + b"\n", bootstrap=broker.bootstrap)
    assert outcome.exit_code == ExitCode.FAILED
    assert outcome.json == {"topic": "small", "sent": 1, "acknowledged": 0, "failed": 1}
    assert "MSG_SIZE_TOO_LARGE" in outcome.stderr


def test_producing_survives_a_crash_of_the_broker(broker: RunningBroker, topic: str) -> None:
    writing = start_cordwood("produce", topic, bootstrap=broker.bootstrap)
    assert writing.stdin is not None
    writing.stdin.write(b"before\n")
    writing.stdin.flush()
    wait_until(lambda: consume(broker, topic) == [b"before"], 20, "the first record")
    broker.kill()
    writing.stdin.write(b"while it is away\n")
    writing.stdin.flush()
    assert writing.stderr is not None
    began_s = time.monotonic()
    noted = writing.stderr.readline().decode()
    assert "no record was acknowledged for 5 s, 1 wait" in noted
    assert "Connection refused). Still trying" in noted
    assert time.monotonic() - began_s < 10
    broker.restart()
    said, more = writing.communicate(timeout=60)
    assert (writing.returncode, said, more) == (ExitCode.OK, b"2 of 2 records acknowledged\n", b"")
    assert consume(broker, topic) == [b"before", b"while it is away"]
