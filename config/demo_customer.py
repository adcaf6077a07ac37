"""The demo's customer: the batch API over HTTP and nothing else, as any client would use it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import requests

from anex.errors import AnexError

if TYPE_CHECKING:
    from pathlib import Path

_TIMEOUT_SECONDS = (10.0, 60.0)
"""To connect, and between two reads."""

_DETAIL_CHARACTERS_MAX = 500
_DOWNLOAD_BYTES = 1 << 20


class RequestFailed(AnexError):
    """The service answered with an error, or not at all; the message says to what, and with which words."""

    code = "request_failed"


class Customer:
    """One API key at one address, such as ``http://127.0.0.1:8000``."""

    def __init__(self, origin: str, key: str) -> None:
        self._base = f"{origin}/batch/v1"
        self._http = requests.Session()
        # Everything here is on this machine: a proxy from the environment could only get in the way.
        self._http.trust_env = False
        self._authorization = {"Authorization": f"Bearer {key}"}

    def upload(self, path: Path) -> str:
        """Upload a file and return the input's id. Raises ``RequestFailed``, like all methods here."""
        target = self._call("POST", "/inputs", {"format": "jsonl"})
        with path.open("rb") as file:
            # A form, not a PUT: its policy bounds what may be stored. The file must be its last field.
            answer = self._send("POST", target["upload_url"], data=target["fields"], files={"file": file})
        _require_success(answer, "the upload to the object store")
        return str(target["id"])

    def submit(self, input_id: str, model: str) -> str:
        """Submit a job and return its id."""
        return str(self._call("POST", "/jobs", {"input_id": input_id, "model": model})["id"])

    def get_job(self, job_id: str) -> dict[str, Any]:
        """Return the job as the API tells it."""
        return self._call("GET", f"/jobs/{job_id}")

    def approve(self, job_id: str) -> None:
        """Approve the estimate: from here on the job costs money."""
        self._call("POST", f"/jobs/{job_id}/approve")

    def download(self, job_id: str, target: Path) -> None:
        """Write the result to ``target``."""
        link = self._call("GET", f"/jobs/{job_id}/result")["result_url"]
        with self._send("GET", link, stream=True) as answer, target.open("wb") as file:
            _require_success(answer, "the download of the result")
            for block in answer.iter_content(_DOWNLOAD_BYTES):
                file.write(block)

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        answer = self._send(method, f"{self._base}{path}", json=body, headers=self._authorization)
        _require_success(answer, f"{method} {path}")
        found: dict[str, Any] = answer.json()
        return found

    def _send(self, method: str, url: str, **options: Any) -> requests.Response:
        try:
            return self._http.request(method, url, timeout=_TIMEOUT_SECONDS, **options)
        except requests.RequestException as failure:
            place = url.partition("?")[0]  # a signed link's query opens the file
            raise RequestFailed(f"{method} {place} got no answer ({type(failure).__name__})") from failure


def _require_success(answer: requests.Response, what: str) -> None:
    if answer.ok:
        return
    try:
        detail = answer.json()["detail"]
    except (ValueError, KeyError, TypeError):
        detail = answer.text.strip()
    raise RequestFailed(f"{what} answered {answer.status_code}: {str(detail)[:_DETAIL_CHARACTERS_MAX]}")
