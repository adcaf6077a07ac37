"""The object store of one region: inputs, parts, checkpoints, results and model files on S3.

Reads are conditional on the ETag that was recorded, so that what was checked is what runs. Ranges are
half-open: ``start`` included, ``end`` excluded. Every method raises ``StorageUnavailable`` when the store
gives no usable answer within the bounds of ``anex.s3``.
"""

from __future__ import annotations

import re
import secrets
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from anex.errors import StorageUnavailable
from anex.object_assemble import merge, send_parts
from anex.object_join import plan_join
from anex.object_multipart import PART_BYTES, MultipartUpload, ObjectWriter, find_head, put_object
from anex.object_stream import fetch_ahead
from anex.s3 import (
    ObjectHead,
    PartSource,
    PresignedPost,
    S3Location,
    error_code,
    make_client,
    storage_errors,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

__all__ = ["ObjectHead", "ObjectStore", "ObjectWriter", "PartSource", "PresignedPost", "S3Location"]

STREAM_BLOCK_BYTES = 8 << 20

READ_ATTEMPTS = 3
"""Of one range whose body was cut; botocore repeats requests, but not the reading of a body."""

DELETE_BATCH = 1000
"""Keys that one ``DeleteObjects`` takes."""

HOME_REGION = "us-east-1"
"""The one region in which S3 refuses a location constraint, since it is the default."""


class ObjectStore:
    """One bucket. Thread-safe; make it after a fork."""

    def __init__(self, location: S3Location) -> None:
        self._bucket = location.bucket
        self._region = location.region
        self._client = make_client(location, location.endpoint)
        # A signature covers the host name: a link must be signed for the address that its reader uses.
        self._public_client = make_client(location, location.public_endpoint)

    def uri(self, key: str) -> str:
        """Return the ``s3://`` name of an object; a name for people and requests, never opened as given."""
        return f"s3://{self._bucket}/{key}"

    def presign_upload(self, key: str, max_bytes: int, expires_seconds: int) -> PresignedPost:
        """Return a form that uploads exactly ``key``, of at most ``max_bytes``, within ``expires_seconds``.

        Stores differ in when they enforce the size: check it again with ``head``.
        """
        form = self._public_client.generate_presigned_post(
            Bucket=self._bucket,
            Key=key,
            Conditions=[["content-length-range", 0, max_bytes]],
            ExpiresIn=expires_seconds,
        )
        return PresignedPost(url=form["url"], fields=form["fields"])

    def presign_download(self, key: str, filename: str, expires_seconds: int) -> str:
        """Return a link that downloads ``key`` under a file name (letters, digits, ``.``, ``_``, ``-``)."""
        if not re.fullmatch(r"[A-Za-z0-9._-]+", filename):
            raise ValueError(f"{filename!r} is not a plain file name")
        parameters = {
            "Bucket": self._bucket,
            "Key": key,
            "ResponseContentDisposition": f'attachment; filename="{filename}"',
        }
        link: str = self._public_client.generate_presigned_url(
            "get_object", Params=parameters, ExpiresIn=expires_seconds
        )
        return link

    def head(self, key: str) -> ObjectHead | None:
        """Return size and ETag of an object, or None where there is none."""
        return find_head(self._client, self._bucket, key)

    def read_range(self, key: str, start: int, end: int, etag: str | None = None) -> bytes:
        """Return bytes ``start`` to ``end``; fewer where the object ends before.

        With ``etag``, only of that very object. Raises ``ObjectMissing`` and ``ObjectChanged``.
        """
        if end <= start:
            return b""
        request = {"Bucket": self._bucket, "Key": key, "Range": f"bytes={start}-{end - 1}"}
        if etag is not None:
            request["IfMatch"] = etag
        with storage_errors(key):
            return self._read_body(request)

    def _read_body(self, request: dict[str, str]) -> bytes:
        for _ in range(READ_ATTEMPTS - 1):
            body = self._open_body(request)
            try:
                return _read_all(body)
            except BotoCoreError:
                continue
        return _read_all(self._open_body(request))

    def _open_body(self, request: dict[str, str]) -> Any:
        """Return the answer's stream, or None for a range that begins behind the object's end."""
        try:
            return self._client.get_object(**request)["Body"]
        except ClientError as error:
            if error_code(error) not in {"InvalidRange", "416"}:
                raise
            return None

    def stream(
        self, key: str, start: int, end: int, etag: str | None, block_bytes: int = STREAM_BLOCK_BYTES
    ) -> Iterator[bytes]:
        """Yield bytes ``start`` to ``end`` in order, in blocks of ``block_bytes``, fetched a little ahead."""
        spans = ((at, min(at + block_bytes, end)) for at in range(start, end, block_bytes))
        return fetch_ahead(lambda first, last: self.read_range(key, first, last, etag), spans)

    def put(self, key: str, data: bytes) -> str:
        """Write a small object and return its ETag."""
        return put_object(self._client, self._bucket, key, data).etag

    def open_writer(self, key: str) -> ObjectWriter:
        """Return a context manager that writes an object of any size as a stream."""
        return ObjectWriter(self._client, self._bucket, key)

    def join(self, key: str, parts: Sequence[PartSource]) -> ObjectHead:
        """Write the concatenation of ``parts`` under ``key``; the store copies what it can.

        Raises ``ObjectMissing`` or ``ObjectChanged`` when a part is not what was recorded.
        """
        plan = plan_join([part.size_bytes for part in parts])
        size_bytes = sum(part.size_bytes for part in plan)
        if size_bytes <= PART_BYTES:
            data = b"".join(merge(part, parts, self.read_range) for part in plan)
            return put_object(self._client, self._bucket, key, data)
        upload = MultipartUpload(self._client, self._bucket, key)
        try:
            send_parts(upload, plan, parts, self.read_range)
            return upload.complete(size_bytes)
        except BaseException:
            upload.abort()
            raise

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects; one that is not there is no fault."""
        self._delete_all({"Key": key} for key in keys)

    def delete_prefix(self, prefix: str) -> None:
        """Delete all under ``prefix``, which ends with a slash: uploads in progress, objects, versions."""
        if not prefix.endswith("/"):
            raise ValueError(f"{prefix!r} does not end with a slash and would hit neighbours")
        self._erase(prefix, lambda _key: True)

    def erase(self, key: str) -> None:
        """Delete one object with all that is left of it: uploads in progress, and in a versioned bucket its versions."""
        self._erase(key, lambda found: found == key)

    def _erase(self, prefix: str, is_meant: Callable[[str], bool]) -> None:
        with storage_errors(prefix):
            for upload in list(self._list("list_multipart_uploads", "Uploads", prefix)):
                if is_meant(upload["Key"]):
                    MultipartUpload(self._client, self._bucket, upload["Key"], upload["UploadId"]).abort()
            status = self._client.get_bucket_versioning(Bucket=self._bucket).get("Status")
        is_versioned = status in {"Enabled", "Suspended"}
        found = (
            self._list_versions(prefix) if is_versioned else ({"Key": key} for key in self.list_keys(prefix))
        )
        self._delete_all(each for each in found if is_meant(each["Key"]))

    def list_keys(self, prefix: str) -> Iterator[str]:
        """Yield the keys under ``prefix`` in order."""
        with storage_errors(prefix):
            for entry in self._list("list_objects_v2", "Contents", prefix):
                yield entry["Key"]

    def _list(self, operation: str, field: str, prefix: str) -> Iterator[dict[str, Any]]:
        pages = self._client.get_paginator(operation).paginate(Bucket=self._bucket, Prefix=prefix)
        for page in pages:
            yield from page.get(field, ())

    def _list_versions(self, prefix: str) -> Iterator[dict[str, str]]:
        with storage_errors(prefix):
            for kind in ("Versions", "DeleteMarkers"):
                for entry in self._list("list_object_versions", kind, prefix):
                    yield {"Key": entry["Key"], "VersionId": entry["VersionId"]}

    def _delete_all(self, objects: Iterable[dict[str, str]]) -> None:
        """Delete in batches, once all is listed: the pages of a listing would shift under deletions."""
        remaining = list(objects)
        for at in range(0, len(remaining), DELETE_BATCH):
            batch = remaining[at : at + DELETE_BATCH]
            with storage_errors(batch[0]["Key"]):
                answer = self._client.delete_objects(
                    Bucket=self._bucket, Delete={"Objects": batch, "Quiet": True}
                )
            if answer.get("Errors"):
                failed = answer["Errors"][0]
                raise StorageUnavailable(f"{failed['Key']} was not deleted ({failed.get('Code', 'unknown')})")

    def ensure_bucket(self) -> None:
        """Make the bucket if it is not there."""
        options: dict[str, Any] = {}
        if self._region != HOME_REGION:
            options["CreateBucketConfiguration"] = {"LocationConstraint": self._region}
        with storage_errors(self._bucket):
            if self._has_bucket():
                return
            try:
                self._client.create_bucket(Bucket=self._bucket, **options)
            except ClientError as error:
                if error_code(error) != "BucketAlreadyOwnedByYou":
                    raise

    def _has_bucket(self) -> bool:
        try:
            self._client.head_bucket(Bucket=self._bucket)
        except ClientError as error:
            if error_code(error) not in {"404", "NoSuchBucket"}:
                raise
            return False
        return True

    def probe(self) -> None:
        """Write, read and delete a small object: whether the store works for us, permissions included."""
        key, data = f"probe/{secrets.token_hex(8)}", b"probe"
        etag = self.put(key, data)
        if self.read_range(key, 0, len(data), etag) != data:
            raise StorageUnavailable("the object store returned other bytes than were written")
        self.delete([key])


def _read_all(body: Any) -> bytes:
    return b"" if body is None else bytes(body.read())
