"""Copy an input from a TLS server into the bucket, against sending the same bytes to the bucket from a file.

The copy is the service's own, in its worker process, from ``POST /inputs`` to ``ready``; the reference is boto3's
``upload_file`` as it stands, many parts at once. One input: pseudo-random bytes, seeded. ``SIZE_MB`` turns the size down.
"""

from __future__ import annotations

import hashlib
import os
import random
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from anex.s3 import S3Location, make_client
from bench.support.rounds import print_figures, read_peak_mb, say, take_turns, time_seconds
from tests.support.live_stack import LiveStack
from tests.support.tls_server import Exchange, TlsServer, run_tls_server

if TYPE_CHECKING:
    from config.settings import Settings

MB = 1 << 20
FULL_MB = 1024
SIZE_MB = int(os.environ.get("SIZE_MB", str(FULL_MB)))
SEED = 20261201
SEND_BYTES = MB
POLL_SECONDS = 0.05
CATALOG = Path(__file__).parent.parent / "tests" / "support" / "models.test.toml"


def main() -> None:
    """Run the benchmark."""
    with tempfile.TemporaryDirectory(prefix="anex-bench-") as name:
        folder = Path(name)
        file = folder / "input.jsonl"
        digest = write_file(file)
        with run_tls_server(folder, lambda exchange: send_file(exchange, file)) as server:
            measure(folder, file, server, digest)


def measure(folder: Path, file: Path, server: TlsServer, digest: str) -> None:
    """Take turns on a stack of its own."""
    extra = {"ANEX_OUTBOUND_ALLOWED_NETWORKS": "127.0.0.0/8", "ANEX_OUTBOUND_CA_FILE": str(server.ca_file)}
    (folder / "data").mkdir()
    stack = LiveStack(folder / "data", CATALOG, environment=extra)
    stack.start()
    try:
        stack.become_customer()
        worker = next(pid for pid, line in stack.processes().items() if "--queues ingest" in line)
        idle_mb = read_peak_mb(worker)
        copying, sending = take_turns(
            lambda: time_seconds(lambda: copy(stack, server)),
            lambda: time_seconds(lambda: send(stack.settings, file)),
        )
        peak_mb = read_peak_mb(worker)
    finally:
        stack.stop()
    say(f"{SIZE_MB} MB copied from a TLS server in {copying:.1f} s ({SIZE_MB / copying:.0f} MB/s),")
    say(f"sent from a file in {sending:.1f} s ({SIZE_MB / sending:.0f} MB/s);")
    say(f"the worker's memory peaked at {peak_mb:.0f} MB, {idle_mb:.0f} MB before.")
    print_figures(
        x_upload=round(sending / copying, 3),
        mb_per_s=round(SIZE_MB / copying, 1),
        worker_peak_mb=round(peak_mb, 1),
        worker_idle_mb=round(idle_mb, 1),
        input=digest,
        settings={"size_mb": SIZE_MB, "seed": SEED},
        quick=SIZE_MB < FULL_MB,
    )


def write_file(file: Path) -> str:
    """Write the input and return its hash."""
    generator, digest = random.Random(SEED), hashlib.sha256()  # noqa: S311 - a seeded file, no secret
    with file.open("wb") as out:
        for _ in range(SIZE_MB):
            block = generator.randbytes(MB)
            digest.update(block)
            out.write(block)
    return digest.hexdigest()[:16]


def send_file(exchange: Exchange, file: Path) -> None:
    """Answer with the file, or with its size where one byte was asked for."""
    size = file.stat().st_size
    if "range" in exchange.request.headers:
        exchange.respond(206, b"x", {"Content-Range": f"bytes 0-0/{size}"})
        return
    exchange.send(f"HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n".encode())
    with file.open("rb") as source:
        while block := source.read(SEND_BYTES):
            exchange.send(block)


def copy(stack: LiveStack, server: TlsServer) -> None:
    """Have the service copy the file, and wait until it is ready."""
    created = stack.call("POST", "/inputs", {"source_url": server.url("/input.jsonl")})
    while (found := stack.call("GET", f"/inputs/{created['id']}"))["status"] != "ready":
        if found["status"] == "failed":
            raise RuntimeError(found["error"])
        time.sleep(POLL_SECONDS)


def send(settings: Settings, file: Path) -> None:
    """Send the file to the bucket as boto3 does by default."""
    endpoint = settings.require("s3.endpoint")
    location = S3Location(
        endpoint=endpoint,
        public_endpoint=endpoint,
        region=settings.s3.region,
        bucket=settings.s3.bucket,
        access_key=settings.require("s3.access_key"),
        secret_key=settings.require("s3.secret_key"),
    )
    make_client(location, endpoint).upload_file(str(file), settings.s3.bucket, "bench/input.jsonl")


if __name__ == "__main__":
    main()
