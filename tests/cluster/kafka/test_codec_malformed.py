"""Decoding of arbitrary bytes: the result is a request or Malformed, in bounded time and memory (promise 6)."""

import contextlib
import random
import time
import tracemalloc

import pytest

from cordwood.chaos.live.malformed_frames import bursts
from cordwood.chaos.live.wild_requests import api_versions, known_apis, wild_request
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.codec import decoding, is_flexible, read_head
from cordwood.cluster.kafka.wire import Malformed
from cordwood.storage.steps import at_once

FRAMES = 20_000
FRAME_S_MAX = 10.0
"""Processor seconds for one frame. A frame usually takes a millisecond."""
FRAME_BYTES_MAX = 32 << 20


def served_versions(api_key: int) -> range:
    return ApiKey(api_key).versions if api_key in set(ApiKey) else range(0)


def decode(frame: bytes) -> object | None:
    """Return the request in a frame, or None if its API key and version are not served."""
    view = memoryview(frame)[4:]
    head = read_head(view, is_flexible)
    if (head.api_key, head.version) not in SERVED:
        return None
    request: object = at_once(decoding(head.api_key, head.version, view, head.body))
    return request


SERVED = frozenset((key, version) for key, version in api_versions(known_apis()) if version in served_versions(key))


@pytest.mark.parametrize("seed", ["0", "1", "2"])
def test_damaged_frames_are_decoded_or_refused(seed: str) -> None:
    decoded = refused = 0
    for burst in bursts(seed, FRAMES // 3):
        for frame in burst.all_frames:
            # The time of this thread alone, since other threads share the processor.
            begin = time.thread_time()
            try:
                decoded += decode(frame) is not None
            except Malformed:
                refused += 1
            assert time.thread_time() - begin < FRAME_S_MAX, f"{burst.kinds}: {frame.hex()}"
    assert decoded > FRAMES // 20
    assert refused > FRAMES // 20


def test_no_frame_makes_the_decoder_take_much_memory() -> None:
    tracemalloc.start()
    try:
        for burst in bursts("memory", 3000):
            for frame in burst.all_frames:
                tracemalloc.reset_peak()
                before = tracemalloc.get_traced_memory()[0]
                with contextlib.suppress(Malformed):
                    decode(frame)
                taken = tracemalloc.get_traced_memory()[1] - before
                assert taken < FRAME_BYTES_MAX, f"{taken:,} bytes for {burst.kinds}: {frame.hex()}"
    finally:
        tracemalloc.stop()


def test_sound_requests_of_every_version_are_decoded() -> None:
    rng = random.Random(3)
    for api_key, version in sorted(SERVED):
        wild = wild_request(rng, api_key, version)
        assert decode(len(wild.frame).to_bytes(4, "big") + wild.frame) is not None, (api_key, version)
