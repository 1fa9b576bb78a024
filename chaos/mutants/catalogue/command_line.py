"""Mutants of the command line: wrong use is refused with a sentence that says what to do."""

from cordwood.chaos.mutants.mutant import Mutant, Scenario

MUTANTS = (
    Mutant(
        "numbers-have-no-limit",
        "cluster/cli/topic.py",
        "            max=REPLICAS_MAX,\n",
        "",
        "Each number on the command line has the limit of the client or of the protocol.",
        "A number that is too large ends a command with a traceback.",
        Scenario.BROKERS,
    ),
    Mutant(
        "brokers-that-do-not-run-are-asked",
        "cluster/cli/broker.py",
        "            if each not in running:\n",
        "            if False:\n",
        "The configs of a broker are changed only if it runs.",
        "A wrong id is reported after 20 seconds, as a cluster that does not answer.",
        Scenario.BROKERS,
    ),
    Mutant(
        "urls-are-addresses",
        "cluster/cli/client.py",
        '    if not host or "/" in host or not is_port:\n',
        "    if not host or not is_port:\n",
        "A bootstrap server is a host and a port.",
        "A URL is reported as a host without an address.",
        Scenario.BROKERS,
    ),
    Mutant(
        "reading-an-archive-makes-its-directory",
        "cluster/cli/archive.py",
        '    if url.startswith("file://") and not Path(unquote(urlsplit(url).path)).is_dir():\n',
        "    if False:\n",
        "Commands that read an archive leave the store as it is.",
        "A mistyped path makes an empty directory.",
        Scenario.BROKERS,
    ),
    Mutant(
        "misspelt-keys-have-no-effect",
        "cluster/cli/client.py",
        "        check_spelling(given, (SERVERS_KEY,))\n",
        "",
        "A misspelt key of --command-config is refused.",
        "A command asks another cluster than the file means.",
        Scenario.BROKERS,
    ),
    Mutant(
        "a-file-is-a-log-directory",
        "cluster/broker/process.py",
        "            except (FileExistsError, NotADirectoryError) as error:\n                message",
        "            except ZeroDivisionError as error:\n                message",
        "A log directory that is a file is named with what to do.",
        "A broker does not start, and says only that a file exists.",
        Scenario.BROKERS,
    ),
    Mutant(
        "an-interrupted-flush-is-not-reported",
        "cluster/cli/produce.py",
        """            producer.flush()
        finally:
""",
        """        finally:
            producer.flush()
""",
        "`cordwood produce` prints how many records were acknowledged, however it ends.",
        "Ctrl-C while a cluster without quorum is awaited leaves unsaid which records it has.",
        Scenario.BROKERS,
    ),
    Mutant(
        "a-broker-of-up-is-started-with-serve",
        "cluster/cli/client.py",
        "    if named.isdisjoint(addresses):\n",
        "    if True:\n",
        "A message about a broker that does not run names the command that starts it.",
        "A second cluster is started at the address of a broker that was killed.",
        Scenario.BROKERS,
    ),
    Mutant(
        "an-invalid-name-is-refused-without-the-rule",
        "cluster/cli/client.py",
        "if error.code() == KafkaError.TOPIC_EXCEPTION else",
        "if False else",
        "A message about wrong use says what to do.",
        "A mistyped topic is reported as 'Invalid topic'.",
        Scenario.BROKERS,
    ),
    Mutant(
        "a-drain-that-cannot-be-is-done",
        "cluster/balance/plan.py",
        'return "no move is planned" if self.problems else "nothing to do: bytes and leaders are even"',
        'return "nothing to do: bytes and leaders are even"',
        "The verdict of a plan does not deny goals that the plan cannot meet.",
        "The drain of a broker that keeps all its replicas is shown as one with nothing to do.",
        Scenario.BROKERS,
    ),
)
