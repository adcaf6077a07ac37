"""The demo's parts: what it sends, what it shows, and the words in which it fails."""

from __future__ import annotations

import subprocess
import sys
import threading
from contextlib import contextmanager
from email import message_from_bytes
from email.policy import HTTP
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import StringIO
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from config.demo import run_demo
from config.demo_customer import Customer, RequestFailed
from config.demo_rows import ResultWrong, pick_answers, require_line_for_line
from config.demo_screen import Screen
from config.demo_stack import DemoStack, StackNotReady
from config.stack.layout import DataFolder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Call = tuple[str, str | None, bytes]


class Service:
    """An HTTP server that gives prepared answers and keeps what it was asked."""

    def __init__(self, origin: str) -> None:
        self.origin = origin
        self.answers: dict[str, tuple[int, bytes]] = {}
        self.calls: list[Call] = []

    def answer(self, call: str, status: int = 200, **body: Any) -> None:
        self.answers[call] = (status, orjson.dumps(body))


@contextmanager
def run_service() -> Iterator[Service]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            call = f"{self.command} {self.path}"
            kind = self.headers.get("Content-Type")
            running.calls.append((call, kind, body))
            status, answer = running.answers.get(call, (404, b"nothing here"))
            self.send_response(status)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        do_POST = do_GET  # noqa: N815 - the name is the library's

        def log_message(self, *_arguments: Any) -> None:
            """Keep the test's output clean."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    running = Service(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield running
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def service() -> Iterator[Service]:
    with run_service() as running:
        yield running


def parse_form(kind: str | None, body: bytes) -> list[tuple[str, bytes]]:
    """Return a multipart form's fields in order."""
    message = message_from_bytes(f"Content-Type: {kind}\r\n\r\n".encode() + body, policy=HTTP)
    fields = []
    for part in message.iter_parts():
        content = part.get_payload(decode=True)
        assert isinstance(content, bytes)
        fields.append((str(part.get_param("name", header="content-disposition")), content))
    return fields


def test_an_upload_is_a_form_with_the_file_last(service: Service, tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_bytes(b'{"a": 1}\n')
    fields = {"key": "inputs/x", "policy": "signed"}
    service.answer("POST /batch/v1/inputs", id="inp_1", upload_url=f"{service.origin}/bucket", fields=fields)
    service.answer("POST /bucket")
    assert Customer(service.origin, "sk-1").upload(file) == "inp_1"
    _, kind, body = service.calls[1]
    assert parse_form(kind, body) == [("key", b"inputs/x"), ("policy", b"signed"), ("file", b'{"a": 1}\n')]


def test_a_refusal_is_told_in_the_services_own_words(service: Service) -> None:
    service.answer("POST /batch/v1/jobs", 402, detail="the organization has no credits")
    with pytest.raises(RequestFailed, match=r"POST /jobs answered 402: the organization has no credits"):
        Customer(service.origin, "sk-1").submit("inp_1", "m")


def test_an_answer_that_is_no_json_is_told_as_it_is(service: Service) -> None:
    with pytest.raises(RequestFailed, match=r"GET /jobs/job_1 answered 404: nothing here"):
        Customer(service.origin, "sk-1").get_job("job_1")


def test_silence_is_told_without_the_links_signature() -> None:
    with run_service() as gone:
        origin = gone.origin
    with pytest.raises(
        RequestFailed, match=r"GET http://127\.0\.0\.1:\d+/batch/v1/jobs/j got no answer"
    ) as failure:
        Customer(origin, "sk-1").get_job("j?X-Amz-Signature=secret")
    assert "secret" not in str(failure.value)


def test_a_result_is_written_to_its_file(service: Service, tmp_path: Path) -> None:
    service.answer("GET /batch/v1/jobs/job_1/result", result_url=f"{service.origin}/object?X-Amz-Signature=s")
    service.answers["GET /object?X-Amz-Signature=s"] = (200, b'{"custom_id": "a"}\n')
    Customer(service.origin, "sk-1").download("job_1", tmp_path / "result.jsonl")
    assert (tmp_path / "result.jsonl").read_bytes() == b'{"custom_id": "a"}\n'


def row(row_id: str) -> dict[str, Any]:
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": f"ask {row_id}"}]
    return {"custom_id": row_id, "body": {"messages": messages}}


def result(row_id: str, text: str | None = "yes") -> dict[str, Any]:
    response = {"body": {"choices": [{"message": {"content": text}}]}} if text is not None else None
    return {"custom_id": row_id, "response": response}


def test_one_answer_of_each_kind_is_shown_and_five_at_most() -> None:
    ids = ["a-01", "a-02", "b-01", "c-01", "d-01", "e-01", "f-01"]
    picked = pick_answers([row(row_id) for row_id in ids], [result(row_id) for row_id in ids])
    assert [row_id for row_id, _, _ in picked] == ["a-01", "b-01", "c-01", "d-01", "e-01"]
    assert picked[0] == ("a-01", "ask a-01", "yes")


def test_a_row_without_an_answer_is_not_shown() -> None:
    picked = pick_answers([row("a-01"), row("a-02")], [result("a-01", None), result("a-02")])
    assert [row_id for row_id, _, _ in picked] == ["a-02"]


@pytest.mark.parametrize("answered", [["a"], ["b", "a"], ["a", "b", "b"], []])
def test_a_result_that_is_not_line_for_line_is_wrong(answered: list[str]) -> None:
    with pytest.raises(ResultWrong):
        require_line_for_line([row("a"), row("b")], [result(row_id) for row_id in answered])


def test_a_result_in_the_inputs_order_is_right() -> None:
    require_line_for_line([row("a"), row("b")], [result("a"), result("b")])


def test_without_a_terminal_progress_is_a_line_for_each_change() -> None:
    out = StringIO()
    with Screen(out).follow() as show:
        for text in ("1 of 2 rows done", "1 of 2 rows done", "2 of 2 rows done"):
            show(text)
    assert out.getvalue().splitlines() == ["  1 of 2 rows done", "  2 of 2 rows done"]


def test_what_a_model_writes_is_shown_as_it_is() -> None:
    out = StringIO()
    Screen(out).show_answers([("a-01", "a [red]prompt[/red]", "an [/answer] :smile:")])
    assert "a [red]prompt[/red]" in out.getvalue()
    assert "→ an [/answer] :smile:" in out.getvalue()


def test_a_finished_stage_is_kept_with_its_duration() -> None:
    screen = Screen(StringIO())
    with screen.stage("Upload"):
        pass
    assert [title for title, _ in screen.durations] == ["Upload"]


def test_a_stage_that_fails_is_not_called_done() -> None:
    out = StringIO()
    screen = Screen(out)
    with pytest.raises(ResultWrong), screen.stage("Upload"):
        raise ResultWrong("no")
    assert screen.durations == []
    assert "done" not in out.getvalue()


def test_a_stack_that_ends_while_starting_is_told_with_its_last_words(tmp_path: Path) -> None:
    log = tmp_path / "stack.log"
    log.write_bytes(b"")
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-c", "print('postgres is missing'); raise SystemExit(3)"], stdout=output
        )
    said: list[str] = []
    stack = DemoStack(DataFolder(tmp_path), log, process)
    with pytest.raises(StackNotReady, match=r"exit code 3:\npostgres is missing"):
        stack.wait_ready(said.append)


def test_a_stack_of_somebody_else_that_is_gone_is_told(tmp_path: Path) -> None:
    with pytest.raises(StackNotReady, match="has ended"):
        DemoStack(DataFolder(tmp_path), tmp_path / "stack.log", None).wait_ready(lambda _line: None)


def test_a_wrong_setting_ends_the_demo_with_its_name(tmp_path: Path) -> None:
    out = StringIO()
    assert run_demo({"ANEX_DATA_DIR": str(tmp_path), "ANEX_API_WORKERS": "many"}, out=out) == 1
    assert "ANEX_API_WORKERS" in out.getvalue()
