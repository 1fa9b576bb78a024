"""Limits of the log cleaner, which follow the dynamic config of the broker."""

from closed_broker import ROOT, ClosedBroker, with_broker
from kio.schema.errors import ErrorCode

from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.replication.log_cleaner import CleanerLimits

BROKER = 4
SET, DELETE = 0, 1
THREADS, RATE, BACKOFF = "log.cleaner.threads", "log.cleaner.io.max.bytes.per.second", "log.cleaner.backoff.ms"


def test_the_log_cleaner_follows_the_dynamic_config() -> None:
    async def story(broker: ClosedBroker) -> None:
        async def alter(threads: str | None, rate: str | None, backoff_ms: str | None) -> None:
            values = {THREADS: threads, RATE: rate, BACKOFF: backoff_ms}
            rows = tuple(
                {"name": key, "config_operation": DELETE if value is None else SET, "value": value}
                for key, value in values.items()
            )
            resource = {"resource_type": BROKER, "resource_name": "1", "configs": rows}
            answer = await broker.ask(ROOT, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=(resource,))
            assert answer.responses[0].error_code is ErrorCode.none, answer

        def limits() -> CleanerLimits:
            return broker.broker._log_cleaner._limits()

        before = limits()
        await alter("3", "1000", "50")
        assert limits() == before._replace(threads=3, bytes_per_second=1000.0, backoff_s=0.05)
        await alter(None, None, None)
        assert limits() == before

    with_broker(story)
