"""Settings from a file, the environment and the command line, and the message for each mistake."""

import pytest

from cordwood.cluster.config.settings import SETTINGS, Settings, attribute_of, key_of
from cordwood.cluster.config.sources import ConfigMistakes, load


def mistakes(toml: str = "", environ: dict[str, str] | None = None, overrides: tuple[str, ...] = ()) -> tuple[str, ...]:
    with pytest.raises(ConfigMistakes) as error:
        load(toml, environ, overrides)
    assert str(error.value) == "\n".join(error.value.sentences)
    return error.value.sentences


def test_with_nothing_given_it_is_one_node_on_this_machine() -> None:
    settings = load()
    assert settings == Settings()
    assert settings.listeners == ("PLAINTEXT://127.0.0.1:9092",)
    assert settings.log_dirs == ("./cordwood-data",)
    assert (settings.default_replication_factor, settings.offsets_topic_replication_factor) == (1, 1)
    assert settings.offsets_topic_num_partitions == 50
    assert settings.group_initial_rebalance_delay_ms == 0


@pytest.mark.parametrize(
    "toml",
    [
        'log.retention.ms = 5000\nlog.dirs = ["/a", "/b"]\nauto.create.topics.enable = false',
        '"log.retention.ms" = "5000"\n"log.dirs" = "/a, /b"\n"auto.create.topics.enable" = "false"',
        '[log]\nretention.ms = 5000\ndirs = ["/a", "/b"]\n[auto.create]\n"topics.enable" = false',
    ],
    ids=["dotted", "quoted", "tables"],
)
def test_dotted_keys_quoted_keys_and_tables_come_to_the_same(toml: str) -> None:
    settings = load(toml)
    assert settings.log_retention_ms == 5000
    assert settings.log_dirs == ("/a", "/b")
    assert not settings.auto_create_topics_enable
    assert settings.given == {"log.retention.ms", "log.dirs", "auto.create.topics.enable"}


def test_the_command_line_goes_before_the_environment_and_that_before_the_file() -> None:
    toml = "node.id = 2\nnum.partitions = 2\nlog.segment.bytes = 2000"
    environ = {"CORDWOOD_NUM_PARTITIONS": "3", "CORDWOOD_LOG_SEGMENT_BYTES": "3000", "HOME": "x"}
    settings = load(toml, environ, ["log.segment.bytes=4000"])
    assert (settings.node_id, settings.num_partitions, settings.log_segment_bytes) == (2, 3, 4000)


def test_variables_of_the_command_line_are_no_settings() -> None:
    others = ("CORDWOOD_CONFIG", "CORDWOOD_BOOTSTRAP_SERVERS", "CORDWOOD_REQUIRE")
    assert load(environ=dict.fromkeys(others, "x")) == Settings()


def test_every_mistake_is_named_with_its_place_and_what_to_do() -> None:
    sentences = mistakes(
        'node.id = -1\nlog.retentoin.ms = 5\nflush.policy = "sometimes"',
        {"CORDWOOD_NUM_PARTITIONS": "many"},
        ("delete.topic.enable=perhaps", "port", "log.cleanup.policy=burn"),
    )
    assert sentences == (
        "--set port: write it as key=value.",
        "The configuration file: node.id is '-1', but must be a whole number of at least 0.",
        "The configuration file: there is no setting log.retentoin.ms. Did you mean log.retention.ms?",
        "The configuration file: flush.policy is 'sometimes', but must be one of group, os.",
        "The environment variable CORDWOOD_NUM_PARTITIONS: num.partitions is 'many', but must be a whole number of at "
        "least 1.",
        "--set delete.topic.enable=perhaps: delete.topic.enable is 'perhaps', but must be true or false.",
        "--set log.cleanup.policy=burn: log.cleanup.policy is 'burn', but must be a comma-separated list of compact, "
        "delete.",
    )


@pytest.mark.parametrize(
    ("toml", "sentence"),
    [
        ("log.dirs = [1.5]", "log.dirs is a list, but must be a string or a number"),
        ("num.partitions = 1.5", "num.partitions is '1.5', but must be a whole number"),
        ("num.partitions = 3000000000", "num.partitions is '3000000000', but must be a whole number of at least 1"),
        ("log.cleaner.min.cleanable.ratio = 1.5", "must be a number from 0 to 1"),
        ("log.cleaner.min.cleanable.ratio = nan", "must be a number from 0 to 1"),
        ("node.id = 2000-01-01", "node.id is a date, but"),
        ("zookeeper.connect = 'x'", "there is no setting zookeeper.connect."),
        ("log.dirs = ''", "log.dirs is empty: give at least one value, such as ./cordwood-data."),
        ("group.min.session.timeout.ms = 2000000", "no member could join"),
        ("message.max.bytes = 200000000", "the largest batch could not be received"),
        ("log.cleaner.min.compaction.lag.ms = 9\nlog.cleaner.max.compaction.lag.ms = 8", "is larger than"),
        ("listeners = 'host:9092'", "write it as NAME://HOST:PORT"),
        ("this is", "The configuration file is not valid TOML"),
        ('http.listen = "8080"', "write it as HOST:PORT"),
        ("controller.quorum.voters = '1@127.0.0.1:9093,2@broker-2:9093,3@10.0.0.3:9093'", "secret is empty"),
        ("controller.quorum.voters = '1@127.0.0.1:9'\nlisteners = 'PLAINTEXT://:1,CONTROLLER://:9'", "secret is empty"),
        ("archive.url = 's3://key:secret@bucket'", "without credentials and options"),
        ("archive.url = 's3://bucket?region=x'", "without credentials and options"),
        ("archive.url = '/a/directory'", "or file:///DIRECTORY"),
        ("remote.storage.enable = true", "there is no archive: set archive.url"),
        ("'max.connections.per.ip.overrides' = '10.0.0.7'", "write ADDRESS:NUMBER"),
        ("max.connections = 5\nmax.connections.per.ip = 5", 'put it in quotes: "max.connections.per.ip" = 100'),
    ],
)
def test_a_mistake_gets_a_sentence(toml: str, sentence: str) -> None:
    (reported,) = mistakes(toml)
    assert sentence in reported


def test_a_quorum_on_one_machine_needs_no_secret_and_one_with_a_secret_may_be_anywhere() -> None:
    load("controller.quorum.voters = '1@127.0.0.1:9093,2@localhost:9094,3@[::1]:9095'")
    load("controller.quorum.voters = '1@broker-1:9093'\ncontroller.quorum.secret = 'sesame'")


@pytest.mark.parametrize("key", SETTINGS)
def test_every_row_of_the_table_holds_together(key: str) -> None:
    setting = SETTINGS[key]
    assert key_of(attribute_of(key)) == key
    assert Settings().value_of(key) == setting.default
    assert setting.documentation.endswith(".")
    text = Settings().text_of(key)
    if text is not None:
        assert setting.type.parse(text) == setting.default


def test_given_settings_are_distinguished_from_defaults() -> None:
    settings = load("num.partitions = 1")
    assert settings.is_given("num.partitions")
    assert not settings.is_given("node.id")
    assert Settings(node_id=5).is_given("node.id")


def test_a_key_that_is_not_in_the_table_has_no_value() -> None:
    with pytest.raises(KeyError, match="given"):
        Settings().value_of("given")
