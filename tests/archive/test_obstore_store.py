"""Object stores on obstore: a directory, and S3 with its faults."""

import asyncio
from pathlib import Path

import pytest
from faulty_store import SECRET_KEY, Fault, FaultyS3

from cordwood.archive.obstore_store import ATTEMPTS, PART_BYTES, ObstoreStore, credentials_in, open_store
from cordwood.archive.store import ObjectCut, ObjectExists, ObjectMissing, StoreError, StoreUnavailable

BIG = PART_BYTES * 2 + 12345


@pytest.fixture
def directory(tmp_path: Path) -> ObstoreStore:
    return open_store((tmp_path / "archive").as_uri())


@pytest.fixture
def big_file(tmp_path: Path) -> Path:
    """Return a file of several parts, with preallocated space at its end."""
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(bytes(range(251)) * (BIG // 251 + 1) + bytes(4096))
    return path


def run(*steps: object) -> object:
    """Run coroutines one after the other. Return the result of the last one."""

    async def all_steps() -> object:
        result: object = None
        for step in steps:
            result = await step  # type: ignore[misc]
        return result

    return asyncio.run(all_steps())


@pytest.fixture(params=["directory", "store"])
def any_store(request: pytest.FixtureRequest) -> ObstoreStore:
    found: ObstoreStore = request.getfixturevalue(request.param)
    return found


def test_objects_are_read_listed_and_deleted(any_store: ObstoreStore) -> None:
    async def scenario() -> None:
        for name in ("a/2", "a/1", "b/1", "a/10/x"):
            await any_store.put(name, name.encode() * 3)
        assert await any_store.get("a/2") == b"a/2a/2a/2"
        assert await any_store.get_range("a/2", 3, 6) == b"a/2"
        assert await any_store.get_range("a/2", 4, 4) == b""
        listed = await any_store.list("a/")
        assert [(one.name, one.size) for one in listed] == [("a/1", 9), ("a/10/x", 18), ("a/2", 9)]
        assert [one.name for one in await any_store.list("a/1")] == ["a/1", "a/10/x"]
        assert [one.name for one in await any_store.list("a/", after="a/10/x")] == ["a/2"]
        assert await any_store.list("c/") == []
        await any_store.delete(["a/1", "a/never-there", "b/1"])
        assert [one.name for one in await any_store.list("")] == ["a/10/x", "a/2"]

    run(scenario())


def test_a_missing_object_is_missing(any_store: ObstoreStore) -> None:
    with pytest.raises(ObjectMissing, match="no object named a/1"):
        run(any_store.get("a/1"))
    with pytest.raises(ObjectMissing):
        run(any_store.get_range("a/1", 0, 5))


def test_an_object_that_ends_too_soon_is_cut(any_store: ObstoreStore) -> None:
    run(any_store.put("a", b"12345"))
    for start in (3, 5, 9):
        with pytest.raises(ObjectCut, match="only 5 bytes"):
            run(any_store.get_range("a", start, 10))


def test_no_object_is_replaced(any_store: ObstoreStore) -> None:
    run(any_store.put("a", b"first"))
    with pytest.raises(ObjectExists):
        run(any_store.put("a", b"other"))
    run(any_store.put("a", b"first"))
    assert run(any_store.get("a")) == b"first"


def test_a_file_is_put_in_parts(any_store: ObstoreStore, big_file: Path) -> None:
    paced: list[int] = []

    async def pace(size: int) -> None:
        paced.append(size)

    run(any_store.put_file("segment", str(big_file), BIG, pace))
    assert run(any_store.get("segment")) == big_file.read_bytes()[:BIG]
    assert sum(paced) == BIG
    # The same file counts as created, another one does not.
    run(any_store.put_file("segment", str(big_file), BIG))
    with pytest.raises(ObjectExists):
        run(any_store.put_file("segment", str(big_file), BIG - 1))


def test_a_small_file_is_one_object(any_store: ObstoreStore, big_file: Path) -> None:
    run(any_store.put_file("segment", str(big_file), 1000))
    assert run(any_store.get("segment")) == big_file.read_bytes()[:1000]


def test_a_file_that_is_too_short_is_an_error(directory: ObstoreStore, tmp_path: Path) -> None:
    (tmp_path / "short").write_bytes(b"12345")
    with pytest.raises(OSError, match="2 bytes too soon"):
        run(directory.put_file("segment", str(tmp_path / "short"), 7))


@pytest.mark.parametrize("fault", [Fault.SLOW_DOWN, Fault.SILENCE, Fault.RESET])
def test_a_put_is_repeated_and_its_first_success_counts(store: ObstoreStore, s3: FaultyS3, fault: Fault) -> None:
    s3.fail("PUT", fault)
    run(store.put("a", b"content"))
    assert s3.count("PUT") == 2
    assert run(store.get("a")) == b"content"


def test_a_put_that_seemed_to_fail_replaces_no_other_object(store: ObstoreStore, s3: FaultyS3) -> None:
    run(store.put("a", b"first"))
    s3.fail("PUT", Fault.RESET)
    with pytest.raises(ObjectExists):
        run(store.put("a", b"other"))
    assert run(store.get("a")) == b"first"


@pytest.mark.parametrize("fault", [Fault.SLOW_DOWN, Fault.RESET])
@pytest.mark.parametrize("method", ["PUT", "POST"])
def test_an_upload_in_parts_is_repeated(
    store: ObstoreStore, s3: FaultyS3, big_file: Path, method: str, fault: Fault
) -> None:
    # POST begins the upload and completes it: the object may be there already.
    s3.fail(method, fault)
    run(store.put_file("segment", str(big_file), BIG))
    assert run(store.get("segment")) == big_file.read_bytes()[:BIG]


def test_an_upload_whose_completion_was_not_answered_counts(store: ObstoreStore, s3: FaultyS3, big_file: Path) -> None:
    s3.fail("POST", None, Fault.RESET)
    run(store.put_file("segment", str(big_file), BIG))
    assert s3.count("POST") == 2
    assert run(store.get("segment")) == big_file.read_bytes()[:BIG]


@pytest.mark.parametrize("fault", [Fault.SLOW_DOWN, Fault.RESET, Fault.CUT])
def test_a_read_is_repeated(store: ObstoreStore, s3: FaultyS3, fault: Fault) -> None:
    content = bytes(range(256)) * 1000
    run(store.put("a", content))
    s3.fail("GET", fault, fault)
    assert run(store.get("a")) == content
    s3.fail("GET", fault)
    assert run(store.get_range("a", 100, 200_000)) == content[100:200_000]
    s3.fail("GET", fault)
    assert [one.name for one in run(store.list(""))] == ["a"]  # type: ignore[attr-defined]


def test_a_store_that_is_down_is_unavailable(store: ObstoreStore, s3: FaultyS3) -> None:
    s3.is_down = True
    with pytest.raises(StoreUnavailable, match=f"after {ATTEMPTS} attempts"):
        run(store.put("a", b"content"))
    assert s3.count("PUT") == ATTEMPTS
    with pytest.raises(StoreUnavailable):
        run(store.delete(["a"]))
    s3.is_down = False
    run(store.put("a", b"content"))


def test_a_bucket_that_is_not_there_is_no_missing_object(s3: FaultyS3) -> None:
    store = open_store("s3://other", s3.credentials, backoff_s=0.001)
    with pytest.raises(StoreUnavailable, match=r"NoSuchBucket|not found"):
        run(store.put("a", b"content"))
    with pytest.raises(StoreUnavailable):
        run(store.list(""))


def test_a_refusal_is_not_repeated(store: ObstoreStore, s3: FaultyS3) -> None:
    s3.fail("GET", Fault.REFUSED)
    with pytest.raises(StoreError, match="the store refuses a"):
        run(store.get("a"))
    assert s3.count("GET") == 1


def test_no_error_has_credentials(s3: FaultyS3) -> None:
    credentials = {**s3.credentials, "endpoint": "http://127.0.0.1:1"}
    store = open_store(f"s3://{s3.bucket}/?secret={SECRET_KEY}", credentials, attempts=1)
    with pytest.raises(StoreUnavailable) as failed:
        run(store.get("a"))
    assert SECRET_KEY not in str(failed.value)
    with pytest.raises(StoreError, match="aws_secret_key") as wrong:
        open_store("s3://some", {"aws_secret_key": SECRET_KEY})
    assert SECRET_KEY not in str(wrong.value)


@pytest.mark.parametrize("url", ["", "shed", "http://shed", "file://host/dir", "file:///", "ftp://a/b"])
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(StoreError, match="is not the URL of an object store"):
        open_store(url)


def test_credentials_are_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "credentials"
    path.write_text("# S3\naws_access_key_id = one\n\naws_secret_access_key=two=three\n")
    assert credentials_in(str(path)) == {"aws_access_key_id": "one", "aws_secret_access_key": "two=three"}
    path.write_text(SECRET_KEY)
    with pytest.raises(StoreError, match="line 1") as wrong:
        credentials_in(str(path))
    assert SECRET_KEY not in str(wrong.value)
    with pytest.raises(StoreError, match="No such file"):
        credentials_in(str(tmp_path / "other"))
