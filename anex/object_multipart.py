"""Multipart uploads: written as a stream, finished once, never left behind.

Memory of a writer: two parts of 8 MiB, one that fills while the other is sent. A full part is handed on, never copied.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

from botocore.exceptions import BotoCoreError, ClientError

from anex.errors import ObjectMissing, StorageUnavailable
from anex.object_join import PARTS_MAX
from anex.s3 import ObjectHead, storage_errors

if TYPE_CHECKING:
    from types import TracebackType

PART_BYTES = 8 << 20
"""Size of a written part: 10,000 of them, the most that S3 takes, are 78 GiB."""


class MultipartUpload:
    """One upload in progress, begun here or (``upload_id``) elsewhere.

    Parts may be added from several threads, each under its own number from 1.
    """

    def __init__(self, client: Any, bucket: str, key: str, upload_id: str | None = None) -> None:
        self._client = client
        self._target = {"Bucket": bucket, "Key": key}
        self._key = key
        self._etags: dict[int, str] = {}
        self._upload_id = upload_id or self._begin()

    def _begin(self) -> str:
        with storage_errors(self._key):
            upload_id: str = self._client.create_multipart_upload(**self._target)["UploadId"]
        return upload_id

    def upload_part(self, number: int, data: bytes | bytearray) -> None:
        """Send the bytes of a part."""
        with storage_errors(self._key):
            answer = self._client.upload_part(**self._part(number), Body=data)
        self._etags[number] = answer["ETag"]

    def copy_part(self, number: int, source_key: str, source_etag: str, source_range: str | None) -> None:
        """Let the store copy a part from another object of the bucket, provided that it still has this ETag.

        Raises ``ObjectMissing`` and ``ObjectChanged`` for the source.
        """
        request: dict[str, Any] = self._part(number)
        request["CopySource"] = {"Bucket": self._target["Bucket"], "Key": source_key}
        request["CopySourceIfMatch"] = source_etag
        if source_range is not None:
            request["CopySourceRange"] = source_range
        with storage_errors(source_key):
            answer = self._client.upload_part_copy(**request)
        self._etags[number] = answer["CopyPartResult"]["ETag"]

    def complete(self, size_bytes: int) -> ObjectHead:
        """Finish the upload of ``size_bytes`` in all and return the object's head.

        Completing can answer an error after it succeeded (its first answer was lost, and the repeat finds
        no upload; or a 200 carries an error). The object itself settles the question: a key is written with
        one content only, so an object of the expected size is ours. Raises ``StorageUnavailable`` when it
        is not there.
        """
        parts = [{"PartNumber": number, "ETag": etag} for number, etag in sorted(self._etags.items())]
        failure: Exception | None = None
        try:
            self._client.complete_multipart_upload(
                **self._target, UploadId=self._upload_id, MultipartUpload={"Parts": parts}
            )
        except (ClientError, BotoCoreError) as error:
            failure = error
        head = find_head(self._client, self._target["Bucket"], self._key)
        if head is None or head.size_bytes != size_bytes:
            raise StorageUnavailable(f"the upload of {self._key} did not complete") from failure
        return head

    def abort(self) -> None:
        """Give up, as well as the store lets us: deletion by prefix sweeps up what stays."""
        try:
            self._client.abort_multipart_upload(**self._target, UploadId=self._upload_id)
        except (ClientError, BotoCoreError):
            return

    def _part(self, number: int) -> dict[str, Any]:
        return {**self._target, "UploadId": self._upload_id, "PartNumber": number}


class ObjectWriter:
    """Writes one object as a stream; a context manager that completes at its end and aborts on an exception.

    What fits into one part is sent as a plain PUT. After the end ``head`` is the object's.
    """

    def __init__(self, client: Any, bucket: str, key: str) -> None:
        self._client, self._bucket, self._key = client, bucket, key
        self._buffer = bytearray()
        self._upload: MultipartUpload | None = None
        self._sender: ThreadPoolExecutor | None = None
        self._sending: Future[None] | None = None
        self._parts = 0
        self._size_bytes = 0
        self.head: ObjectHead | None = None

    def write(self, data: bytes) -> None:
        """Append ``data``; a part that is full is sent while the next one fills. Raises what sending an earlier one raised."""
        self._size_bytes += len(data)
        rest = memoryview(data)
        while rest:
            if len(self._buffer) == PART_BYTES:  # sent when more comes: what just fits is one plain PUT
                full, self._buffer = self._buffer, bytearray()
                self._send(full)
            room = PART_BYTES - len(self._buffer)
            self._buffer += rest[:room]
            rest = rest[room:]

    def close(self) -> ObjectHead:
        """Send what is left, complete the object and return its head. Repeating it returns the same."""
        if self.head is None:
            if self._upload is None:
                self.head = put_object(self._client, self._bucket, self._key, bytes(self._buffer))
            else:
                self._send(self._buffer)
                self._finish_sending()
                self.head = self._upload.complete(self._size_bytes)
        return self.head

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._abort()
            return
        try:
            self.close()
        except BaseException:
            self._abort()
            raise

    def _send(self, data: bytearray) -> None:
        if self._parts == PARTS_MAX:
            raise ValueError(f"{self._key} is over {PARTS_MAX} parts of {PART_BYTES} bytes")
        if self._upload is None:
            self._upload = MultipartUpload(self._client, self._bucket, self._key)
            self._sender = ThreadPoolExecutor(1, thread_name_prefix="part-sender")
        self._wait_for_part()
        self._parts += 1
        if self._sender is not None:
            self._sending = self._sender.submit(self._upload.upload_part, self._parts, data)

    def _wait_for_part(self) -> None:
        sending, self._sending = self._sending, None
        if sending is not None:
            sending.result()

    def _finish_sending(self) -> None:
        try:
            self._wait_for_part()
        finally:
            if self._sender is not None:
                self._sender.shutdown()
                self._sender = None

    def _abort(self) -> None:
        """Abort once nothing is being sent: a part that lands afterwards would stay for ever."""
        with suppress(Exception):  # what stopped the writing is on its way already
            self._finish_sending()
        if self._upload is not None and self.head is None:
            self._upload.abort()


def put_object(client: Any, bucket: str, key: str, data: bytes) -> ObjectHead:
    """Write a small object in one request.

    Without ``If-None-Match``: a repeat after a lost answer would be refused for the success of the first.
    """
    with storage_errors(key):
        answer = client.put_object(Bucket=bucket, Key=key, Body=data)
    return ObjectHead(size_bytes=len(data), etag=answer["ETag"])


def find_head(client: Any, bucket: str, key: str) -> ObjectHead | None:
    """Return size and ETag of an object, or None where there is none."""
    try:
        with storage_errors(key):
            answer = client.head_object(Bucket=bucket, Key=key)
    except ObjectMissing:
        return None
    return ObjectHead(size_bytes=answer["ContentLength"], etag=answer["ETag"])
