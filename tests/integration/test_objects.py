"""The object store against a real S3 server: forms, ranges, writers, joins, deletion and what goes wrong."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
import requests
from botocore.exceptions import ClientError, IncompleteReadError

from anex.errors import ObjectChanged, ObjectMissing, StorageUnavailable
from anex.object_join import PART_MIN_BYTES
from anex.objects import ObjectStore, PartSource, S3Location

if TYPE_CHECKING:
    from collections.abc import Callable

MIB = 1 << 20
TIMEOUT_SECONDS = 30


@pytest.fixture(scope="module")
def store(s3_location: S3Location) -> ObjectStore:
    made = ObjectStore(s3_location)
    made.ensure_bucket()
    return made


@pytest.fixture
def prefix() -> str:
    return f"tests/{uuid4().hex}/"


def pattern(size_bytes: int, seed: int = 0) -> bytes:
    """Bytes in which every shift and swap shows."""
    block = b"".join((seed * 1_000_003 + number).to_bytes(8, "big") for number in range(8192))
    return (block * (size_bytes // len(block) + 1))[:size_bytes]


def read_all(store: ObjectStore, key: str) -> bytes:
    head = store.head(key)
    assert head is not None
    return b"".join(store.stream(key, 0, head.size_bytes, head.etag))


def put_source(store: ObjectStore, key: str, data: bytes) -> PartSource:
    return PartSource(key, store.put(key, data), len(data))


def post(store: ObjectStore, key: str, data: bytes, max_bytes: int, form_key: str = "") -> requests.Response:
    form = store.presign_upload(key, max_bytes, 60)
    with requests.Session() as session:
        session.trust_env = False
        return session.post(
            form.url,
            data=form.fields | ({"key": form_key} if form_key else {}),
            files={"file": data},
            timeout=TIMEOUT_SECONDS,
        )


def test_a_presigned_form_uploads_exactly_its_key(store: ObjectStore, prefix: str) -> None:
    assert post(store, f"{prefix}a", b"hello", 5).ok
    assert store.read_range(f"{prefix}a", 0, 5) == b"hello"

    assert post(store, f"{prefix}b", b"hello", 5, form_key=f"{prefix}c").status_code == 403
    assert store.head(f"{prefix}c") is None


def test_a_presigned_form_refuses_more_than_its_bytes(store: ObjectStore, prefix: str) -> None:
    assert not post(store, f"{prefix}a", b"hello!", 5).ok


def test_a_presigned_link_downloads_under_the_file_name(store: ObjectStore, prefix: str) -> None:
    store.put(f"{prefix}a", b"hello")
    with requests.Session() as session:
        session.trust_env = False
        answer = session.get(
            store.presign_download(f"{prefix}a", "result.jsonl", 60), timeout=TIMEOUT_SECONDS
        )

    assert answer.content == b"hello"
    assert answer.headers["Content-Disposition"] == 'attachment; filename="result.jsonl"'
    with pytest.raises(ValueError, match="not a plain file name"):
        store.presign_download(f"{prefix}a", 'a"; b', 60)


def test_links_are_signed_for_the_public_address(s3_location: S3Location) -> None:
    store = ObjectStore(replace(s3_location, public_endpoint="https://objects.example.com"))

    assert store.presign_download("a", "a", 60).startswith("https://objects.example.com/")
    assert "X-Amz-Algorithm=AWS4-HMAC-SHA256" in store.presign_download("a", "a", 60)
    assert store.presign_upload("a", 1, 60).url.startswith("https://objects.example.com/")


def test_head_tells_size_and_etag_or_nothing(store: ObjectStore, prefix: str) -> None:
    etag = store.put(f"{prefix}a", b"hello")
    head = store.head(f"{prefix}a")

    assert head is not None
    assert (head.size_bytes, head.etag) == (5, etag)
    assert store.head(f"{prefix}b") is None


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [(0, 5, b"hello"), (1, 3, b"el"), (3, 99, b"lo"), (5, 9, b""), (2, 2, b"")],
)
def test_a_range_is_half_open_and_ends_with_the_object(
    store: ObjectStore, prefix: str, start: int, end: int, expected: bytes
) -> None:
    etag = store.put(f"{prefix}a", b"hello")

    assert store.read_range(f"{prefix}a", start, end, etag) == expected


def test_an_empty_object_reads_as_nothing(store: ObjectStore, prefix: str) -> None:
    etag = store.put(f"{prefix}a", b"")

    assert store.read_range(f"{prefix}a", 0, 65536, etag) == b""
    assert list(store.stream(f"{prefix}a", 0, 0, etag)) == []


def test_a_read_of_a_changed_or_missing_object_is_refused(store: ObjectStore, prefix: str) -> None:
    etag = store.put(f"{prefix}a", b"hello")
    store.put(f"{prefix}a", b"other")

    with pytest.raises(ObjectChanged):
        store.read_range(f"{prefix}a", 0, 5, etag)
    with pytest.raises(ObjectChanged):
        list(store.stream(f"{prefix}a", 0, 5, etag))
    with pytest.raises(ObjectMissing):
        store.read_range(f"{prefix}b", 0, 5, etag)


def test_a_stream_yields_blocks_in_order(store: ObjectStore, prefix: str) -> None:
    data = pattern(1000)
    etag = store.put(f"{prefix}a", data)
    blocks = list(store.stream(f"{prefix}a", 10, 990, etag, block_bytes=64))

    assert b"".join(blocks) == data[10:990]
    assert {len(block) for block in blocks[:-1]} == {64}


def test_a_stream_may_be_left_early(store: ObjectStore, prefix: str) -> None:
    etag = store.put(f"{prefix}a", pattern(1000))

    assert len(list(itertools.islice(store.stream(f"{prefix}a", 0, 1000, etag, block_bytes=10), 3))) == 3


@pytest.mark.parametrize("size_bytes", [0, 5, 8 * MIB, 8 * MIB + 1, 20 * MIB])
def test_a_writer_writes_any_size(store: ObjectStore, prefix: str, size_bytes: int) -> None:
    data = pattern(size_bytes)
    with store.open_writer(f"{prefix}a") as writer:
        for start in range(0, size_bytes, 3 * MIB):
            writer.write(data[start : start + 3 * MIB])

    assert writer.head == store.head(f"{prefix}a")
    assert read_all(store, f"{prefix}a") == data


def test_a_writer_that_fails_leaves_nothing(store: ObjectStore, prefix: str) -> None:
    def write_and_fail() -> None:
        with store.open_writer(f"{prefix}a") as writer:
            writer.write(pattern(9 * MIB))
            raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        write_and_fail()

    assert store.head(f"{prefix}a") is None
    assert list(store._list("list_multipart_uploads", "Uploads", prefix)) == []


@pytest.mark.parametrize(
    "sizes",
    [
        [],
        [0, 0],
        [3, 0, 4],
        [PART_MIN_BYTES],
        [12 * MIB],
        [PART_MIN_BYTES, 1],
        [1, PART_MIN_BYTES, 1],
        [7, 6 * MIB, 100, 12 * MIB, 3 * MIB, 3 * MIB, 5],
        [MIB] * 13,
    ],
)
def test_a_join_is_the_concatenation(store: ObjectStore, prefix: str, sizes: list[int]) -> None:
    pieces = [pattern(size, seed) for seed, size in enumerate(sizes)]
    sources = [put_source(store, f"{prefix}{seed}", piece) for seed, piece in enumerate(pieces)]

    head = store.join(f"{prefix}joined", sources)

    assert head == store.head(f"{prefix}joined")
    assert head.size_bytes == sum(sizes)
    assert read_all(store, f"{prefix}joined") == b"".join(pieces)


@pytest.mark.parametrize("index", [0, 1, 2])
def test_a_join_refuses_a_source_that_changed(store: ObjectStore, prefix: str, index: int) -> None:
    sources = [
        put_source(store, f"{prefix}{seed}", pattern(size, seed))
        for seed, size in enumerate([6 * MIB, MIB, 13 * MIB])
    ]
    store.put(sources[index].key, pattern(sources[index].size_bytes, 9))

    with pytest.raises(ObjectChanged):
        store.join(f"{prefix}joined", sources)
    assert store.head(f"{prefix}joined") is None
    assert list(store._list("list_multipart_uploads", "Uploads", prefix)) == []


def test_a_join_refuses_a_source_that_is_gone(store: ObjectStore, prefix: str) -> None:
    source = put_source(store, f"{prefix}a", pattern(9 * MIB))
    store.delete([source.key])

    with pytest.raises(ObjectMissing):
        store.join(f"{prefix}joined", [source])


def answer_lost(call: Callable[..., Any], code: str) -> Callable[..., Any]:
    def call_and_fail(**request: Any) -> Any:
        call(**request)
        raise ClientError({"Error": {"Code": code}}, "CompleteMultipartUpload")

    return call_and_fail


@pytest.mark.parametrize("code", ["NoSuchUpload", "InternalError"])
def test_a_completion_whose_answer_was_lost_is_settled_by_the_object(
    store: ObjectStore, prefix: str, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    complete = store._client.complete_multipart_upload
    monkeypatch.setattr(store._client, "complete_multipart_upload", answer_lost(complete, code))
    source = put_source(store, f"{prefix}a", pattern(9 * MIB))

    assert store.join(f"{prefix}joined", [source]) == store.head(f"{prefix}joined")


def test_a_completion_that_failed_is_told_and_leaves_nothing(
    store: ObjectStore, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        store._client, "complete_multipart_upload", answer_lost(lambda **_: None, "InternalError")
    )
    with pytest.raises(StorageUnavailable), store.open_writer(f"{prefix}a") as writer:
        writer.write(pattern(9 * MIB))

    assert store.head(f"{prefix}a") is None
    assert list(store._list("list_multipart_uploads", "Uploads", prefix)) == []


class CutBody:
    def read(self) -> bytes:
        raise IncompleteReadError(actual_bytes=1, expected_bytes=5)


@pytest.mark.parametrize(("cuts", "is_read"), [(2, True), (3, False)])
def test_a_body_that_is_cut_is_read_again_a_bounded_number_of_times(
    store: ObjectStore, prefix: str, cuts: int, is_read: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    etag = store.put(f"{prefix}a", b"hello")
    get_object, left = store._client.get_object, iter(range(cuts))

    def get_cut(**request: Any) -> Any:
        answer = get_object(**request)
        if next(left, None) is None:
            return answer
        answer["Body"].close()
        return {**answer, "Body": CutBody()}

    monkeypatch.setattr(store._client, "get_object", get_cut)
    if is_read:
        assert store.read_range(f"{prefix}a", 0, 5, etag) == b"hello"
    else:
        with pytest.raises(StorageUnavailable):
            store.read_range(f"{prefix}a", 0, 5, etag)


def test_delete_takes_many_keys_and_forgives_missing_ones(store: ObjectStore, prefix: str) -> None:
    store.put(f"{prefix}a", b"a")
    store.delete([f"{prefix}a", *(f"{prefix}missing-{number}" for number in range(1100))])

    assert list(store.list_keys(prefix)) == []


def test_delete_prefix_takes_objects_and_uploads_in_progress_and_no_neighbour(
    store: ObjectStore, prefix: str
) -> None:
    neighbour = f"{prefix.removesuffix('/')}-neighbour/a"
    for key in (f"{prefix}a", f"{prefix}deep/b", neighbour):
        store.put(key, b"x")
    store.open_writer(f"{prefix}c").write(pattern(9 * MIB))

    store.delete_prefix(prefix)

    assert list(store.list_keys(prefix)) == []
    assert list(store._list("list_multipart_uploads", "Uploads", prefix)) == []
    assert store.head(neighbour) is not None
    with pytest.raises(ValueError, match="slash"):
        store.delete_prefix(prefix.removesuffix("/"))


def test_delete_prefix_takes_all_versions(s3_location: S3Location, prefix: str) -> None:
    store = ObjectStore(replace(s3_location, bucket=f"versioned-{uuid4().hex[:12]}"))
    store.ensure_bucket()
    store._client.put_bucket_versioning(Bucket=store._bucket, VersioningConfiguration={"Status": "Enabled"})
    for data in (b"1", b"2"):
        store.put(f"{prefix}a", data)
    store.delete([f"{prefix}a"])
    assert len(list(store._list_versions(prefix))) == 3

    store.delete_prefix(prefix)

    assert list(store._list_versions(prefix)) == []


def test_erase_takes_one_objects_versions_and_uploads_and_no_neighbour(s3_location: S3Location) -> None:
    store = ObjectStore(replace(s3_location, bucket=f"versioned-{uuid4().hex[:12]}"))
    store.ensure_bucket()
    store._client.put_bucket_versioning(Bucket=store._bucket, VersioningConfiguration={"Status": "Enabled"})
    store.put("inputs/a", b"one")
    store.put("inputs/a", b"two")
    store.put("inputs/ab", b"another one's")
    store._client.create_multipart_upload(Bucket=store._bucket, Key="inputs/a")

    store.erase("inputs/a")

    assert {version["Key"] for version in store._list_versions("inputs/")} == {"inputs/ab"}
    assert list(store._list("list_multipart_uploads", "Uploads", "inputs/")) == []


def test_keys_are_listed_in_order(store: ObjectStore, prefix: str) -> None:
    for name in ("b", "a", "c/d"):
        store.put(prefix + name, b"")

    assert list(store.list_keys(prefix)) == [f"{prefix}a", f"{prefix}b", f"{prefix}c/d"]


def test_ensure_bucket_may_be_repeated_and_the_probe_leaves_nothing(s3_location: S3Location) -> None:
    store = ObjectStore(replace(s3_location, bucket=f"fresh-{uuid4().hex[:12]}"))
    store.ensure_bucket()
    store.ensure_bucket()
    store.probe()

    assert list(store.list_keys("probe/")) == []


def test_a_wrong_secret_is_storage_unavailable(s3_location: S3Location) -> None:
    store = ObjectStore(replace(s3_location, secret_key="wrong"))

    with pytest.raises(StorageUnavailable):
        store.probe()
    assert "wrong" not in repr(replace(s3_location, secret_key="wrong"))


def test_a_store_that_cannot_be_reached_is_storage_unavailable(s3_location: S3Location) -> None:
    store = ObjectStore(replace(s3_location, endpoint="http://127.0.0.1:9"))

    with pytest.raises(StorageUnavailable):
        store.put("a", b"a")
