"""Profile stages: assignment of sampled stacks to the stages of a request, and the flame graph."""

import re

import pytest

from cordwood.bench.lines import chosen
from cordwood.bench.profile.__main__ import names_meant, needed
from cordwood.bench.profile.flame import draw, tree
from cordwood.bench.profile.stages import IDLE, OTHER, shares, stacks_of, stage_of

LOOP = "Runner.run (asyncio/runners.py:118);uv_run (core.c:464)"
RECEIVED = f"{LOOP};uv__read (stream.c:1154);Connection.buffer_updated (connection.py:172)"
PRODUCED = f"{RECEIVED};Dispatcher.handle (dispatch.py:88);ProduceHandler.handle (produce.py:95)"
APPENDED = f"{PRODUCED};Partition.append (partition.py:169)"
PUSHED = f"{LOOP};LeaderConnection._received (leader_connection.py:127)"
FOLLOWED = f"{PUSHED};FollowerRole.replicate (follower_role.py:67)"
SYNCED = f"{LOOP};AioSyncer._reap (syncers.py:140);Flusher._group_flushed (flusher.py:127)"
WORKER = "Thread.run (threading.py:982);_worker (concurrent/futures/thread.py:81)"


@pytest.mark.parametrize(
    ("stack", "stage"),
    [
        (f"{LOOP};uv__io_poll (linux.c:1546);epoll_pwait (libc.so.6)", IDLE),
        (f"{LOOP};uv__update_time (core.c:10)", "event loop"),
        (f"{LOOP};uv__stream_io (stream.c:1210);uv__read (stream.c:1154);read (libc.so.6)", "socket receive"),
        (RECEIVED, "socket receive"),
        (f"{PRODUCED};read_produce (produce_request.py:39)", "decode"),
        (PRODUCED, "handler, the rest"),
        (f"{APPENDED};Log.append (log.py:98)", "append (check, index, bookkeeping)"),
        (f"{APPENDED};check (batch.py:110);crc32c_crc32c (_crc32c.c:78)", "crc"),
        (f"{APPENDED};RealFile.pwrite (real_disk.py:36);pwritev64v2 (libc.so.6)", "append (pwrite)"),
        (f"{APPENDED};LeaderRole._push_to_followers (leader_role.py:106);"
         "ReplicaStream.schedule_push (follower_connection.py:68)",
         "replicate (push)"),
        (f"{FOLLOWED};RealFile.pwrite (real_disk.py:36)", "follower append"),
        (f"{SYNCED};Flusher._flush (flusher.py:105);AioSyncer.sync (syncers.py:92);"
         "AioSyncer._call (syncers.py:152);syscall (libc.so.6)", "flush (io_submit)"),
        (f"{SYNCED};EndOfTickScheduler.run (waiters.py:103);FollowerConnection.wake (follower_connection.py:170)",
         "replicate (push)"),
        (f"{SYNCED};EndOfTickScheduler.run (waiters.py:103);Connection.wake (connection.py:204);"
         "AnswerQueue.next_output (answer_queue.py:120);deque.extend (libc.so.6)", "send"),
        (f"{SYNCED};PendingProduce.one_done (produce_response.py:83);encode (produce_response.py:147)",
         "respond (encode)"),
        (SYNCED, "flush (completion)"),
        (f"{LOOP};RaftQuorum._tick (cordwood/cluster/metadata/raft/voter.py:9);Connection._write (connection.py:108)",
         "metadata"),
        (f"{APPENDED};gc_collect_main (libpython3.11.so.1.0)", "garbage collector"),
        (f"{WORKER};_WorkItem.run (concurrent/futures/thread.py:58);save (state.py:43)",
         "threads (checkpoints, cold reads)"),
        ("main (somewhere.py:1)", OTHER),
    ],
)  # fmt: skip
def test_a_stack_has_the_stage_that_it_does_the_work_of(stack: str, stage: str) -> None:
    assert stage_of(tuple(stack.split(";"))) == stage


def test_threads_that_wait_are_in_no_share() -> None:
    waiting = [f"{WORKER};_queue_SimpleQueue_get (_queuemodule.c.h:177) 700", f"{WORKER} 200"]
    assert shares(stacks_of([*waiting, f"{PRODUCED} 100"])) == {"handler, the rest": 1.0}


def test_without_native_frames_a_bare_loop_is_idle() -> None:
    bare = "serve (cordwood/cluster/cli/serve.py:19);Runner.run (asyncio/runners.py:118) 3"
    assert shares(stacks_of([bare, f"{RECEIVED} 1"])) == {IDLE: 0.75, "socket receive": 0.25}


def test_shares_are_of_all_samples_and_in_the_order_of_a_request() -> None:
    folded = [f"{SYNCED} 1", f"{PRODUCED} 2", f"{LOOP};epoll_pwait (libc.so.6) 5", f"{RECEIVED} 2"]
    assert list(shares(stacks_of(folded)).items()) == [
        (IDLE, 0.5),
        ("socket receive", 0.2),
        ("handler, the rest", 0.2),
        ("flush (completion)", 0.1),
    ]


def test_nothing_sampled_is_nothing_reported() -> None:
    assert shares(stacks_of([])) == {}


def test_a_function_is_one_box_whatever_line_it_was_at_and_idle_has_none() -> None:
    folded = [
        "main (m.py:1);f (m.py:2) 3",
        "main (m.py:1);f (m.py:9);g (m.py:4) 1",
        "main (m.py:1);epoll_wait (libc) 6",
    ]
    root = tree(stacks_of(folded))
    assert root.samples == 4
    called = root.callees["main (m.py)"].callees
    assert {name: node.samples for name, node in called.items()} == {"f (m.py)": 4}


def test_the_way_to_the_loop_is_not_drawn() -> None:
    root = tree(stacks_of([f"<module> (m.py:1);serve (serve.py:19);{RECEIVED} 2", f"{WORKER};load (state.py:43) 1"]))
    assert set(root.callees) == {"Runner.run (asyncio/runners.py)", "Thread.run (threading.py)"}


def test_boxes_are_as_wide_as_their_shares_and_their_names_are_escaped() -> None:
    drawn = draw(tree(stacks_of(["<module> (m.py:1) 3", "g (m.py:4) 1"])), "a & b")
    widths = {
        title: float(width) for title, width in re.findall(r"<title>([^<]*)</title><rect[^>]* width=\"([\d.]+)", drawn)
    }
    assert widths == {
        "all: 4 samples, 100.0%": 1580.0,
        "&lt;module&gt; (m.py): 3 samples, 75.0%": 1185.0,
        "g (m.py): 1 samples, 25.0%": 395.0,
    }
    assert "a &amp; b" in drawn


def test_a_line_called_by_its_whole_name_is_watched_alone() -> None:
    names = ["1 producer, 100 B", "1 producer, 100 B, acks=1", "1 consumer, 100 B"]
    assert names_meant("1 producer, 100 B", names) == {"1 producer, 100 B"}
    assert names_meant("producer", names) == set(names[:2])


def test_a_watched_line_brings_the_warm_up_and_what_it_reads() -> None:
    lines = chosen(["1 consumer, 1 KB"])
    assert [line.name for line in needed(lines, frozenset({"1 consumer, 1 KB"}))] == [line.name for line in lines]
