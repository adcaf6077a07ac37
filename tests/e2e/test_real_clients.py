"""What strangers use to reach the API: curl as the reference shows it, browsers' forms, old and wilful HTTP clients, links."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import requests

from tests.support.clients.raw_http import Answer, Part, Wire, send, send_browser_form
from tests.support.live_stack import MODEL, LiveStack
from tests.support.spine import chat_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

SUPPORT = Path(__file__).parents[1] / "support"
CURL = shutil.which("curl")
BASH = shutil.which("bash")
ORIGIN = "https://console.example.com"
ROWS = chat_rows(7)
DATA = b"".join(ROWS)
BIG_BYTES = 3_000_000

PATHS = {
    "/inputs": "POST",
    "/inputs/inp_nobody": "GET",
    "/jobs": "POST",
    "/jobs/job_nobody": "GET",
    "/jobs/job_nobody/approve": "POST",
    "/jobs/job_nobody/cancel": "POST",
    "/jobs/job_nobody/result": "GET",
    "/jobs/job_nobody/data": "DELETE",
}


pytestmark = pytest.mark.outside


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveStack]:
    running = LiveStack(tmp_path_factory.mktemp("live"), SUPPORT / "models.test.toml")
    running.start()
    running.become_customer()
    yield running
    running.end()


@pytest.fixture(scope="module")
def key_line(stack: LiveStack) -> str:
    return f"Authorization: {stack.headers['Authorization']}"


@pytest.fixture
def form(stack: LiveStack) -> dict[str, Any]:
    return stack.call("POST", "/inputs", {"format": "jsonl"})


@pytest.fixture(scope="module")
def finished(stack: LiveStack) -> str:
    """Run a job; return its id."""
    job_id = stack.submit(ROWS, max_output_tokens=64)
    stack.approve(job_id)
    stack.wait_for(job_id, "done")
    return job_id


@pytest.fixture
def link(stack: LiveStack, finished: str) -> str:
    return str(stack.call("GET", f"/jobs/{finished}/result")["result_url"])


def check_refusal(answer: Answer, status: int, code: str) -> None:
    """Fail unless this refusal has the contract's shape and an id to name."""
    assert answer.status == status, answer
    body = answer.json()
    assert body["error"] == {"code": code, "message": body["detail"]}
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.headers["X-Request-Id"].startswith("req_")


@pytest.mark.skipif(CURL is None or BASH is None, reason="curl or bash is not installed on this machine")
def test_the_references_curl_lines_take_a_job_from_file_to_result(stack: LiveStack, tmp_path: Path) -> None:
    rows, result = tmp_path / "data.jsonl", tmp_path / "result.jsonl"
    rows.write_bytes(DATA)
    token = stack.headers["Authorization"].removeprefix("Bearer ")
    names = {"BASE": stack.base, "TOKEN": token, "MODEL": MODEL, "PYTHON": sys.executable}

    ran = subprocess.run(
        [str(BASH), str(SUPPORT / "clients" / "curl_lines.sh"), str(rows), str(result)],
        env={**os.environ, **names},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert (ran.returncode, ran.stderr) == (0, ""), ran.stdout
    assert ran.stdout.splitlines() == [
        "create 200 awaiting_upload",
        "upload 204",
        "uploaded 200 ready",
        "submit 200 submitted",
        "submit-other 200 submitted",
        "poll 200 cost_ready",
        "approve 200 in_progress",
        "approve-again 409 job_state_conflict",
        "cancel 200 cancelled",
        "cancel-again 409 job_state_conflict",
        "no-result 409 result_unavailable",
        f"result 200 {len(ROWS)}",
        "no-key 422 invalid_request_shape",
        "bad-key 401 invalid_api_key",
        "bad-id 404 job_not_found",
        "no-format 400 invalid_request",
        "bad-model 422 unknown_model",
        "delete 200 done",
        "delete-again 200 done",
        "gone 410 data_deleted",
    ]
    ids = [json.loads(line)["custom_id"] for line in result.read_text("utf-8").splitlines()]
    assert ids == [f"row-{number}" for number in range(1, len(ROWS) + 1)]


@pytest.mark.skipif(CURL is None, reason="curl is not installed on this machine")
@pytest.mark.parametrize("header", ["Expect: 100-continue", "Expect:", "Transfer-Encoding: chunked"])
def test_curl_hears_why_a_large_body_is_refused(
    stack: LiveStack, key_line: str, tmp_path: Path, header: str
) -> None:
    """It reads the answer while it still sends: a connection that is cut would hide the reason."""
    big = tmp_path / "big.json"
    big.write_bytes(b'{"model":"' + b"x" * BIG_BYTES + b'"}')
    lines = ["-H", key_line, "-H", "Content-Type: application/json", "-H", header, "--data-binary", f"@{big}"]

    ran = subprocess.run(
        [str(CURL), "-sS", f"{stack.base}/jobs", *lines], capture_output=True, timeout=60, check=True
    )

    assert json.loads(ran.stdout)["error"]["code"] == "request_too_large"


@pytest.mark.parametrize("content_type", ["application/octet-stream", "application/json"])
def test_a_browsers_form_is_taken(stack: LiveStack, form: dict[str, Any], content_type: str) -> None:
    parts = [Part(name, value.encode()) for name, value in form["fields"].items()]
    file = Part("file", DATA, "data.jsonl", content_type)

    sent = send_browser_form(form["upload_url"], [*parts, file], ORIGIN)

    assert sent.status == 204, sent
    assert stack.call("GET", f"/inputs/{form['id']}")["status"] == "ready"
    job = stack.call("POST", "/jobs", {"input_id": form["id"], "model": MODEL, "max_output_tokens": 5})
    stack.wait_for(job["id"], "cost_ready")
    stack.call("POST", f"/jobs/{job['id']}/cancel")


def test_a_file_is_streamed_from_disk_in_the_order_of_the_fields(
    stack: LiveStack, form: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "data.jsonl"
    path.write_bytes(DATA)

    with path.open("rb") as file:
        sent = requests.post(form["upload_url"], data=form["fields"], files={"file": file}, timeout=30)

    assert sent.status_code == 204, sent.text
    assert stack.call("GET", f"/inputs/{form['id']}")["status"] == "ready"


@pytest.mark.parametrize(
    "missing", ["key", "policy", "x-amz-algorithm", "x-amz-credential", "x-amz-date", "x-amz-signature"]
)
def test_a_form_that_lacks_a_field_is_refused_and_leaves_nothing(
    stack: LiveStack, form: dict[str, Any], missing: str
) -> None:
    """The store answers, not we: XML that names the reason."""
    fields = {name: value for name, value in form["fields"].items() if name != missing}

    sent = requests.post(form["upload_url"], data=fields, files={"file": DATA}, timeout=30)

    assert sent.status_code in (400, 403)
    assert "<Code>" in sent.text
    assert stack.call("GET", f"/inputs/{form['id']}")["status"] == "awaiting_upload"


def test_a_form_whose_file_comes_first_is_never_taken_in_part(stack: LiveStack, form: dict[str, Any]) -> None:
    """S3 refuses it: fields behind the file don't count there. SeaweedFS takes it; then the file must be whole."""
    file = Part("file", DATA, "data.jsonl")
    parts = [Part(name, value.encode()) for name, value in form["fields"].items()]

    sent = send_browser_form(form["upload_url"], [file, *parts], ORIGIN)

    status = stack.call("GET", f"/inputs/{form['id']}")["status"]
    if sent.status != 204:
        assert (sent.status in (400, 403), status) == (True, "awaiting_upload")
        return
    job = stack.call("POST", "/jobs", {"input_id": form["id"], "model": MODEL, "max_output_tokens": 5})
    stack.approve(job["id"])
    assert stack.wait_for(job["id"], "done")["truncated_rows"] == len(ROWS)


def test_urllib_reads_answers_and_refusals(stack: LiveStack, finished: str) -> None:
    def ask(path: str) -> Any:
        request = urllib.request.Request(stack.base + path, headers=stack.headers)  # noqa: S310 - ours
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 - the same
            return json.load(answer)

    assert ask(f"/jobs/{finished}")["status"] == "done"
    with pytest.raises(urllib.error.HTTPError) as refused:
        ask("/jobs/job_nobody")
    with refused.value as answer:
        assert (answer.status, json.load(answer)["error"]["code"]) == (404, "job_not_found")


@pytest.mark.parametrize(
    ("version", "more"), [("1.0", []), ("1.1", ["Host: anex", "Connection: close"])], ids=["1.0", "close"]
)
def test_a_client_that_asks_once_gets_its_answer_and_the_end(
    stack: LiveStack, key_line: str, version: str, more: list[str]
) -> None:
    with Wire(stack.base) as wire:
        wire.say(f"GET /batch/v1/jobs/job_nobody HTTP/{version}", *more, key_line)
        answer = wire.hear()
        check_refusal(answer, 404, "job_not_found")
        assert answer.headers["Connection"] == "close"
        assert wire.hear_end() == b""


def test_a_client_that_waits_for_100_continue_is_told_to_go_on(stack: LiveStack, key_line: str) -> None:
    head = ["POST /batch/v1/inputs HTTP/1.1", "Host: anex", key_line, "Content-Length: 18"]
    with Wire(stack.base) as wire:
        wire.say(*head, "Expect: 100-continue")
        assert wire.hear_line() == b"HTTP/1.1 100 Continue\r\n\r\n"
        wire.say(body=b'{"format":"jsonl"}')
        answer = wire.hear("POST")
    assert (answer.status, answer.json()["status"]) == (200, "awaiting_upload")
    with Wire(stack.base) as wire:
        wire.say(*head, "Expect: a-miracle")
        check_refusal(wire.hear("POST"), 417, "expectation_failed")


def test_a_chunked_body_is_read(stack: LiveStack) -> None:
    headers = {**stack.headers, "Content-Type": "application/json"}

    taken = send(f"{stack.base}/inputs", "POST", iter([b'{"for', b'mat": "js', b'onl"}']), headers)
    refused = send(
        f"{stack.base}/jobs", "POST", iter([b'{"input_id": "inp_nobody", ', b'"model": 5}']), headers
    )

    assert (taken.status, taken.json()["status"]) == (200, "awaiting_upload")
    check_refusal(refused, 422, "invalid_request_shape")
    assert list(refused.json()["errors"]) == ["model"]


def test_chunks_that_are_none_are_the_clients_fault(stack: LiveStack, key_line: str) -> None:
    """They were answered with 500. What follows them on the connection is not read as a request."""
    with Wire(stack.base) as wire:
        wire.say(
            *("POST /batch/v1/jobs HTTP/1.1", "Host: anex", key_line, "Transfer-Encoding: chunked"),
            body=b"zz\r\n{}\r\n0\r\n\r\nGET /healthz HTTP/1.1\r\nHost: anex\r\n\r\n",
        )
        said = wire.hear_end()
    assert said.startswith(b"HTTP/1.1 400 ")
    assert b'"code":"bad_request"' in said
    assert said.count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize(("path", "method"), PATHS.items())
def test_head_and_options_are_answered_everywhere(stack: LiveStack, path: str, method: str) -> None:
    head, options, keyless = (
        send(stack.base + path, each, headers=headers)
        for each, headers in (("HEAD", stack.headers), ("OPTIONS", stack.headers), ("OPTIONS", {}))
    )

    assert (head.status, head.body) == (404 if method == "GET" else 405, b"")
    assert head.headers["X-Request-Id"].startswith("req_")
    assert (options.status, options.body) == (200, b"")
    assert method in options.headers["Allow"].split(", ")
    assert options.headers["X-Request-Id"].startswith("req_")
    check_refusal(keyless, 422, "invalid_request_shape")


@pytest.mark.parametrize(("path", "method"), PATHS.items())
def test_another_method_is_405_and_says_which_ones_there_are(
    stack: LiveStack, path: str, method: str
) -> None:
    for other in {"PUT", "PATCH", "TRACE", "POST", "DELETE"} - {method}:
        refused = send(stack.base + path, other, headers=stack.headers)
        check_refusal(refused, 405, "method_not_allowed")
        assert method in refused.headers["Allow"].split(", ")


@pytest.mark.parametrize("path", ["//jobs", "/jobs/", "/jobs//", "/", "", "/jobs/job_nobody/"])
def test_an_address_that_is_nearly_right_is_404_and_no_redirect(stack: LiveStack, path: str) -> None:
    """A redirect was answered for ``//jobs``: a page of HTML, to an http:// address even behind TLS."""
    for method in ("GET", "POST"):
        check_refusal(send(stack.base + path, method, headers=stack.headers), 404, "not_found")


def test_a_link_needs_nothing_of_ours_and_names_its_file(stack: LiveStack, link: str, finished: str) -> None:
    read = send(link, "GET")

    assert read.status == 200
    assert [json.loads(line) for line in read.body.splitlines()] == stack.lines(finished)
    assert read.headers["Content-Disposition"] == f'attachment; filename="{finished}.jsonl"'


def test_a_download_can_be_resumed(link: str) -> None:
    whole = send(link, "GET").body

    first = send(link, "GET", headers={"Range": "bytes=0-99"})
    rest = send(link, "GET", headers={"Range": "bytes=100-"})
    behind = send(link, "GET", headers={"Range": f"bytes={len(whole)}-"})

    assert (first.status, rest.status, behind.status) == (206, 206, 416)
    assert first.headers["Content-Range"] == f"bytes 0-99/{len(whole)}"
    assert first.body + rest.body == whole


def test_a_link_is_for_one_method_and_one_file(link: str) -> None:
    """S3 signs the method too, so HEAD is refused: a client that wants the size asks for a range."""
    assert send(link, "HEAD").status == 403
    assert send(link, "DELETE").status == 403
    assert send(link[:-4] + "0000", "GET").status == 403
