"""How gunicorn runs the API: ``gunicorn --config python:api.gunicorn_conf api.wsgi:app``. Its address comes from the settings.

Threads suit requests that wait for Postgres and S3; one gets a request when all of it is here (``api.worker``). The application is
loaded by each worker, after the fork: pools and their threads don't survive one. A worker ends after some 20,000 requests, each at
another count: nothing that leaks grows for ever.

Where ``ANEX_METRICS_PORT`` is set, the workers count in files below the data folder and the parent serves the sums at a port of
their own, never at the public one. A file belongs to a worker's place, not to its process: who comes next in that place counts on
in it, so there are never more files than workers.
"""

from __future__ import annotations

import itertools
import shutil
import sys
from typing import Any

from api.raw_errors import use_contract_errors
from config.log import configure_logging
from config.wiring import read_settings

_settings = read_settings()
_counts_folder = _settings.data_dir / "metrics" / f"api-{_settings.api_port}"

bind = f"{_settings.api_host}:{_settings.api_port}"
workers = _settings.api_workers
worker_class = "api.worker.BufferingWorker"
threads = 8
worker_connections = (
    500  # a process has 1,024 file descriptors as a rule, and Postgres, S3 and sources need theirs
)
# Kept connections cost no thread. Who polls at the pace at which a server closes them meets resets: clients and proxies that hold
# connections give them up after 60 s or sooner, so this side must wait longer.
keepalive = 75
preload_app = False
max_requests = 20_000
max_requests_jitter = 2_000
graceful_timeout = 10
control_socket_disable = True  # it would lie in the home folder, one for all installations
# Nobody's word for the path or the scheme is taken: a client's header would change what is asked for.
forwarded_allow_ips = ""
forwarder_headers = ""
accesslog = None  # the application logs one event a request

# The client reads the variable when it is imported, which only workers and ``when_ready`` do. It is set before them.
raw_env = [] if _settings.metrics_port is None else [f"PROMETHEUS_MULTIPROC_DIR={_counts_folder}"]


def on_starting(_server: Any) -> None:
    """Log as the rest does; what gunicorn itself says leaves by the same door. Counting begins at zero."""
    configure_logging(_settings.log_level, _settings.log_format)
    if _settings.metrics_port is not None:
        shutil.rmtree(_counts_folder, ignore_errors=True)
        _counts_folder.mkdir(parents=True)


def when_ready(server: Any) -> None:
    """Serve the sums of what the workers count."""
    if _settings.metrics_port is None:
        return
    from prometheus_client import CollectorRegistry, start_http_server  # noqa: PLC0415 - see ``raw_env``
    from prometheus_client.multiprocess import MultiProcessCollector  # noqa: PLC0415 - see ``raw_env``

    registry = CollectorRegistry()
    MultiProcessCollector(registry)  # type: ignore[no-untyped-call] # the library types it in part
    try:
        server.metrics, _ = start_http_server(_settings.metrics_port, _settings.metrics_host, registry)
    except OSError as error:
        address = f"{_settings.metrics_host}:{_settings.metrics_port}"
        sys.exit(
            f"metrics can't be served at {address} ({error}): set ANEX_METRICS_HOST and ANEX_METRICS_PORT"
        )


def pre_fork(server: Any, worker: Any) -> None:
    """Give a worker the lowest place that is free."""
    taken = {each.place for each in server.WORKERS.values()}
    worker.place = next(place for place in itertools.count() if place not in taken)


def post_fork(server: Any, worker: Any) -> None:
    """Answer unreadable requests in our shape, count in the file of the worker's place, and let go of the parent's port."""
    use_contract_errors()
    worker.request_seconds = _settings.api_request_seconds
    if _settings.metrics_port is None:
        return
    from prometheus_client import values  # noqa: PLC0415 - see ``raw_env``

    server.metrics.socket.close()
    values.ValueClass = values.MultiProcessValue(lambda: worker.place)  # type: ignore[no-untyped-call] # see above


def worker_exit(_server: Any, _worker: Any) -> None:
    """Close what the worker's application opened."""
    from api.context import EXTENSION  # noqa: PLC0415 - loading the application is the worker's, not the parent's
    from api.wsgi import app  # noqa: PLC0415 - see above

    services = app.extensions[EXTENSION]
    services.database.close()
    services.grammar.close()
