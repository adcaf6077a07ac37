"""``POST /inputs``: hands out a form with which a client sends its file straight to the object store."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from anex.errors import NotBuiltYet, RequestRefused
from anex.ids import new_id
from anex.inputs.model import Upload
from anex.inputs.store import insert_upload
from anex.ledger.store import require_credits
from anex.object_keys import input_key
from anex.residency import choose_region

if TYPE_CHECKING:
    from anex.db import Transaction
    from anex.inputs.model import Input, InputRequest
    from anex.orgs.model import Caller
    from anex.regions import Region
    from anex.services import Services


def create_input(services: Services, caller: Caller, request: InputRequest) -> Upload:
    """Make an input that awaits its upload, and the form for it.

    The form takes at most ``limits.input_max_bytes`` and must be begun within ``timings.upload_window_seconds``.
    Raises ``RequestRefused``, ``RegionForbidden``, ``RegionElsewhere``, ``BalanceTooLow``, and ``NotBuiltYet`` for
    a ``source_url``: this version copies nothing.
    """
    _check_mode(request)
    with services.database.transaction(caller.org_id) as transaction:
        region = choose_region(services, transaction, caller.org_id, request.data_residency, "input")
        require_credits(transaction, caller.org_id)
        if request.source_url is not None:
            raise NotBuiltYet(
                "copying an input from a URL is not available yet; leave source_url out and upload the file"
            )
        created = _insert(services, transaction, caller, region, request.format)
    form = services.objects.presign_upload(
        created.object_key, services.limits.input_max_bytes, services.timings.upload_window_seconds
    )
    return Upload(created, form.url, form.fields)


def _check_mode(request: InputRequest) -> None:
    if request.source_url is not None:
        _check_https("source_url", request.source_url)
        if request.callback_url is not None:
            _check_https("callback_url", request.callback_url)
        return
    if request.callback_url is not None:
        raise RequestRefused(
            "callback_url goes with source_url only: an upload has no copy to report on; poll the input instead"
        )
    if request.format is None:
        raise RequestRefused('format is missing: a direct upload needs "format": "jsonl"')


def _check_https(field: str, url: str) -> None:
    try:
        parts = urlsplit(url)
        is_https = parts.scheme == "https" and bool(parts.hostname)
    except ValueError:
        is_https = False
    if not is_https:
        raise RequestRefused(f"{field} must be an https:// URL")


def _insert(
    services: Services, transaction: Transaction, caller: Caller, region: Region, file_format: str | None
) -> Input:
    input_id = new_id("inp", services.clock.now())
    key = input_key(caller.org_id, input_id)
    return insert_upload(
        transaction,
        {
            "id": input_id,
            "org_id": caller.org_id,
            "region": region,
            "format": file_format,
            "object_key": key,
            "object_uri": services.objects.uri(key),
            "window_seconds": services.timings.upload_window_seconds,
            "key_id": caller.key_id,
        },
    )
