"""``POST /inputs``: a form with which a client sends its file straight to the object store, or a copy from its own address."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from anex.errors import RequestRefused, SourceTooLarge
from anex.ids import new_id
from anex.inputs.model import CreatedInput
from anex.inputs.source import find_advertised_size
from anex.inputs.store import insert_copy, insert_upload
from anex.ledger.store import require_credits
from anex.object_keys import input_key
from anex.outbound import CHECK_SECONDS, OutboundRefused
from anex.residency import choose_region
from anex.sealing import new_signing_secret
from anex.waiting import waiting_place

if TYPE_CHECKING:
    from collections.abc import Iterator

    from anex.inputs.model import InputRequest
    from anex.orgs.model import Caller
    from anex.regions import Region
    from anex.services import Services

DEFAULT_FORMAT = "jsonl"


def create_input(services: Services, caller: Caller, request: InputRequest) -> CreatedInput:
    """Make an input that awaits its upload, with the form for it; or, with a ``source_url``, one that is about to be copied.

    Raises, in the order of the checks: ``RequestRefused``, ``RegionForbidden``, ``RegionElsewhere``, ``BalanceTooLow``,
    ``SourceTooLarge``.
    """
    _check_mode(request)
    is_source_known = _check_addresses(services, request)
    with services.database.transaction(caller.org_id) as transaction:
        region = choose_region(services, transaction, caller.org_id, request.data_residency, "input")
        require_credits(transaction, caller.org_id)
    if request.source_url is None:
        return _create_upload(services, caller, request, region)
    if is_source_known:
        _look_at_source(services, request.source_url)
    return _create_copy(services, caller, request, region)


def _check_mode(request: InputRequest) -> None:
    if request.source_url is not None:
        return
    if request.callback_url is not None:
        raise RequestRefused(
            "callback_url goes with source_url only: an upload has no copy to report on; poll the input instead"
        )
    if request.format is None:
        raise RequestRefused('format is missing: a direct upload needs "format": "jsonl"')


def _check_addresses(services: Services, request: InputRequest) -> bool:
    """Refuse URLs that would not be called; return whether the source's host is known already.

    The names have one short time together: who sends one that doesn't resolve must not keep the request's thread for long.
    """
    urls = {"source_url": request.source_url, "callback_url": request.callback_url}
    known = set()
    with _time_for_look_ups() as seconds:
        deadline = time.monotonic() + seconds
        for field, url in urls.items():
            if url is not None and _check_url(services, field, url, deadline - time.monotonic()):
                known.add(field)
    return "source_url" in known


def _check_url(services: Services, field: str, url: str, timeout_seconds: float) -> bool:
    try:
        return services.outbound.check(url, timeout_seconds)
    except OutboundRefused as refused:
        raise RequestRefused(f"{field}: {refused.message}") from refused


@contextmanager
def _time_for_look_ups() -> Iterator[float]:
    """Yield how long names may be looked up in the block: not at all while many wait. A forbidden name fails the copy then."""
    with waiting_place() as has_place:
        yield CHECK_SECONDS if has_place else 0.0


def _look_at_source(services: Services, url: str) -> None:
    """Refuse what says itself that it is too large; what says nothing, or not in time, is judged in the copy."""
    size_bytes = find_advertised_size(services.outbound, url, services.timings.source_probe_seconds)
    limit = services.limits.input_max_bytes
    if size_bytes is not None and size_bytes > limit:
        raise SourceTooLarge(
            f"the source advertises {size_bytes} bytes, over the {limit >> 20} MiB cap; split it over several inputs"
        )


def _create_upload(services: Services, caller: Caller, request: InputRequest, region: Region) -> CreatedInput:
    """Make the input and its form, which takes at most ``limits.input_max_bytes``, begun within the window."""
    window_seconds = services.timings.upload_window_seconds
    values = {**_new_values(services, caller, request, region), "window_seconds": window_seconds}
    with services.database.transaction(caller.org_id) as transaction:
        created = insert_upload(transaction, values)
    form = services.objects.presign_upload(
        created.object_key, services.limits.input_max_bytes, window_seconds
    )
    return CreatedInput(created, upload_url=form.url, fields=form.fields)


def _create_copy(services: Services, caller: Caller, request: InputRequest, region: Region) -> CreatedInput:
    secret = None if request.callback_url is None else new_signing_secret()
    values = {
        **_new_values(services, caller, request, region),
        "source_url": request.source_url,
        "callback_url": request.callback_url,
        "callback_secret": None if secret is None else services.sealer.seal(secret),
    }
    with services.database.transaction(caller.org_id) as transaction:
        created = insert_copy(transaction, values)
        transaction.after_commit(lambda: services.dispatcher.ring_copy(created.id))
    return CreatedInput(created, callback_secret=secret)


def _new_values(services: Services, caller: Caller, request: InputRequest, region: Region) -> dict[str, Any]:
    input_id = new_id("inp", services.clock.now())
    key = input_key(caller.org_id, input_id)
    return {
        "id": input_id,
        "org_id": caller.org_id,
        "region": region,
        "format": request.format or DEFAULT_FORMAT,
        "object_key": key,
        "object_uri": services.objects.uri(key),
        "key_id": caller.key_id,
    }
