"""An organization as the HTTP tests see it: a key, requests made with it, files sent through upload forms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import requests

if TYPE_CHECKING:
    from flask import Flask
    from werkzeug.test import TestResponse


@dataclass(frozen=True, slots=True)
class Tenant:
    """An organization with a key."""

    app: Flask
    org_id: str
    key_id: str
    key: str

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> TestResponse:
        """Send a request with the key; ``body`` as JSON, ``X_Request_Id`` as ``X-Request-Id``."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.app.test_client().open(
            f"/batch/v1{path}",
            method=method,
            json=body,
            headers={"Authorization": f"Bearer {self.key}", **named},
        )

    def upload(self, data: bytes) -> str:
        """Upload an input as a client does; return its id."""
        answer = self.call("POST", "/inputs", {"format": "jsonl"}).get_json()
        sent = send_form(answer["upload_url"], answer["fields"], data)
        assert sent.ok, sent.text
        return str(answer["id"])


def send_form(url: str, fields: dict[str, str], data: bytes) -> requests.Response:
    """POST the form of an upload: its fields in order, the file last."""
    return requests.post(url, data=fields, files={"file": ("data.jsonl", data)}, timeout=30)
