"""Mutants of Spark's exactly-once writes and of its reads of committed records."""

from cordwood.chaos.mutants.mutant import Mutant

TWICE = "Rows of a micro-batch are committed twice."
LOST = "Rows of a micro-batch are lost, and no error says so."
DIRTY = "A reader of committed records returns aborted records, or records of an open transaction."

COMMIT = "spark/exactly_once/commit.py"
DECISIONS = "spark/exactly_once/decisions.py"
IDS = "spark/exactly_once/transactional_ids.py"
COORDINATORS = "spark/client/coordinators.py"

MUTANTS = (
    Mutant(
        "spark-decides-again",
        COMMIT,
        "        if last is not None and last.version == write.version:\n",
        "        if False:\n",
        "A version that is decided is completed, and not decided again.",
        TWICE,
    ),
    Mutant(
        "spark-forgets-decided-transactions",
        COMMIT,
        "            _complete(options, coordinators, write, last.transactions, again)\n",
        "            _abort(coordinators, again)\n",
        "The next driver commits the transactions of a decision.",
        LOST,
    ),
    Mutant(
        "spark-commits-its-own-transactions-after-a-decision",
        COMMIT,
        "            _complete(options, coordinators, write, last.transactions, again)\n",
        "            _complete(options, coordinators, write, (*last.transactions, *again), ())\n",
        "After a decision, only its transactions are committed.",
        TWICE,
    ),
    Mutant(
        "spark-decides-about-aborted-transactions",
        COMMIT,
        "        check_open(write, prepared, ongoing, time.time() * 1000)\n",
        "",
        "A version is decided only while all its transactions are open.",
        LOST,
    ),
    Mutant(
        "spark-does-not-look-for-lost-transactions",
        COMMIT,
        "    lost = [each for each in decided if not ended[each] and not _is_visible(options, each)]\n",
        "    lost: list[PreparedTransaction] = []\n",
        "A decided transaction that was aborted is reported.",
        LOST,
    ),
    Mutant(
        "spark-aborts-what-is-decided",
        COMMIT,
        "            _abort(coordinators, [each for each in prepared if each not in decided])\n",
        "            _abort(coordinators, prepared)\n",
        "An abort leaves decided transactions alone.",
        LOST,
    ),
    Mutant(
        "spark-leaves-late-attempts-open",
        COMMIT,
        "        _complete(options, coordinators, write, prepared, losers)\n",
        "        _complete(options, coordinators, write, prepared, ())\n",
        "A commit aborts the open transactions of the write that do not belong to it.",
        "Readers of committed records stop at the transaction of a killed task until its timeout.",
    ),
    Mutant(
        "spark-decides-late",
        COMMIT,
        "        if now_ms - found.start_ms > DECIDE_WITHIN * found.timeout_ms:\n",
        "        if now_ms - found.start_ms > found.timeout_ms:\n",
        "A version is decided within half of its transactions' timeout.",
        LOST,
    ),
    Mutant(
        "spark-reads-decisions-below-an-open-transaction",
        DECISIONS,
        "    while committed.offsets({place: LATEST})[place] < end:\n",
        "    end = committed.offsets({place: LATEST})[place]\n    while False:\n",
        "All decisions that were made are read, also above another driver's open transaction.",
        TWICE,
    ),
    Mutant(
        "spark-reads-only-the-last-decisions",
        DECISIONS,
        "            top, offsets = bottom, 4 * offsets\n",
        "            break\n",
        "The last decision of a write is found however many other writes have decided since.",
        TWICE,
    ),
    Mutant(
        "spark-repeats-transactional-ids",
        IDS,
        "        number = 0 if write.version > version else number + 1\n",
        "        number = 0\n",
        "Two tasks of one version have different transactional ids.",
        "A task fences the transaction that another has prepared.",
    ),
    Mutant(
        "spark-shares-leases",
        IDS,
        "        except BlockingIOError:\n            os.close(descriptor)\n            return False\n",
        "        except BlockingIOError:\n            pass\n",
        "Two processes have different transactional ids.",
        "A task fences the transaction that another has prepared.",
    ),
    Mutant(
        "spark-takes-leases-over-early",
        IDS,
        "        if os.fstat(descriptor).st_mtime > time.time():\n",
        "        if False:\n",
        "The lease of a process that has ended is free once its last transaction must have ended.",
        "A task fences the transaction that another has prepared.",
    ),
    Mutant(
        "spark-does-not-wait-for-markers",
        COORDINATORS,
        "            incomplete = set(transactional_ids).intersection(self._list(DECIDED))\n",
        "            incomplete: set[str] = set()\n",
        "A write has ended when readers see it.",
        "A program does not read what it has written.",
    ),
    Mutant(
        "spark-reads-uncommitted",
        "spark/read_options.py",
        '    isolation = options.choice("isolation", IsolationName.READ_COMMITTED)\n',
        '    isolation = options.choice("isolation", IsolationName.READ_UNCOMMITTED)\n',
        "Spark reads committed records unless it is asked for others.",
        DIRTY,
    ),
    Mutant(
        "spark-plans-beyond-the-last-stable-offset",
        "spark/client/cluster.py",
        "isolation_level=self.settings.isolation, topics=topics)\n",
        "isolation_level=0, topics=topics)\n",
        "A read of committed records ends at the last stable offset.",
        "A read waits for records above the last stable offset, and fails.",
    ),
)
