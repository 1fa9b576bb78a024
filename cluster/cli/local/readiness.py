"""Readiness of local brokers: the wait until all of them can be used, and the failure if one cannot."""

import subprocess
import time
from collections.abc import Iterable, Mapping, Set

from cordwood.cluster.cli.client import client_settings, parse_servers, why_unreachable
from cordwood.cluster.cli.exits import Failure
from cordwood.cluster.cli.local.directory import LocalBroker
from cordwood.cluster.cli.local.processes import end_in_words

USABLE_S = 60.0
POLL_S = 0.1
ANSWER_S = 2.0
TAIL_LINES = 8


class Awaited:
    """A broker that has to become usable. Failures quote its log from here on.

    `process` is set for a broker that was started here, so that its end is noticed.
    """

    def __init__(self, member: LocalBroker) -> None:
        self.member = member
        self.process: subprocess.Popen[bytes] | None = None
        self._log_start = member.log.stat().st_size if member.log.exists() else 0

    @property
    def exit_code(self) -> int | None:
        """The exit code of a broker that was started here and has ended; a negative one is a signal."""
        return self.process.poll() if self.process else None

    def last_words(self) -> str:
        """Return the end of the broker's log, for the message of a failure."""
        with self.member.log.open("rb") as log:
            log.seek(self._log_start)
            lines = log.read().decode(errors="replace").splitlines()
        said = "".join(f"\n    {line}" for line in lines[-TAIL_LINES:])
        return f" The end of {self.member.log}:{said}" if said else f" Its log is empty ({self.member.log})."


def wait_until_usable(brokers: Iterable[Awaited]) -> None:
    """Return once each broker answers, sees all the others and knows a controller.

    Raises Failure, with the end of its log, for a broker that ended or is not usable within USABLE_S.
    """
    deadline = time.monotonic() + USABLE_S
    waiting = list(brokers)
    everyone = {broker.member.broker_id for broker in waiting}
    while waiting:
        for broker in waiting:
            _require_running(broker)
        lacking = {broker: what_is_lacking(broker.member.kafka, everyone) for broker in waiting}
        waiting = [broker for broker, what in lacking.items() if what]
        if waiting and time.monotonic() > deadline:
            raise _took_too_long(lacking)
        if waiting:
            time.sleep(POLL_S)


def what_is_lacking(address: str, all_brokers: Set[int]) -> str | None:
    """Return why a broker at host:port cannot be used yet; None if it can."""
    if why_unreachable(parse_servers(address)[0]):
        return "does not accept connections"
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    try:
        metadata = AdminClient(client_settings(address)).list_topics(timeout=ANSWER_S)
    except KafkaException:
        return "does not answer"
    missing = sorted(all_brokers - metadata.brokers.keys())
    if missing:
        return f"does not see broker {' and '.join(map(str, missing))}"
    return None if metadata.controller_id >= 0 else "has no controller"


def _require_running(broker: Awaited) -> None:
    if broker.exit_code is not None:
        end = end_in_words(broker.exit_code)
        raise Failure(f"broker {broker.member.broker_id} {end} before it was ready.{broker.last_words()}")


def _took_too_long(lacking: Mapping[Awaited, str | None]) -> Failure:
    short = {broker: what for broker, what in lacking.items() if what}
    in_words = "; ".join(f"broker {broker.member.broker_id} {what}" for broker, what in short.items())
    quoted = next(iter(short)).last_words()
    return Failure(f"the cluster was not ready within {USABLE_S:.0f} s: {in_words}.{quoted}")
