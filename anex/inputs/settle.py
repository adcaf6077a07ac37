"""What has become of an upload: nobody tells us when a file lands, so whoever asks makes us look.

The look is a HEAD of the object, outside of any transaction. An upload that began inside its window may land later, up to
the grace; until then a lapsed input is told as expired, but stays able to become ready.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from anex.errors import InputExpired, InputFailed, InputNotReady, SettingInvalid
from anex.inputs import store
from anex.inputs.model import Input, InputStatus
from anex.residency import require_region

if TYPE_CHECKING:
    from anex.orgs.model import Caller
    from anex.regions import Region
    from anex.services import Services


def get_input(services: Services, caller: Caller, input_id: str) -> Input:
    """Return an input with its readiness settled. Raises ``InputNotFound`` and ``RegionElsewhere``."""
    found = store.get_input(services.database.reader(caller.org_id), caller.org_id, input_id)
    require_region(services, found.region, "input")
    return settle_input(services, found)


def settle_input(services: Services, waiting: Input) -> Input:
    """Look for the object of an input that awaits its upload; return the input as it stands afterwards.

    Asks the object store and opens a transaction of its own: never call it inside one.
    """
    if waiting.status != InputStatus.AWAITING_UPLOAD:
        return waiting
    head = services.objects.head(waiting.object_key)
    if head is None and not _is_past_grace(services, waiting):
        return waiting
    with services.database.transaction(waiting.org_id) as transaction:
        if head is None:
            store.mark_expired(transaction, waiting)
        else:
            store.mark_ready(
                transaction,
                waiting,
                head.size_bytes,
                grace_seconds=services.timings.upload_grace_seconds,
                retention_seconds=services.timings.input_retention_seconds,
            )
        return store.get_input(transaction, waiting.org_id, waiting.id)


def find_for_submit(
    services: Services,
    caller: Caller,
    *,
    input_id: str | None = None,
    input_s3_uri: str | None = None,
    region: Region | None = None,
) -> Input:
    """Return the ready input that a job is submitted against, named by one of its two names.

    Raises ``InputNotFound``; ``SettingInvalid`` when it is not stored in the job's ``region`` (None: this API's);
    ``InputNotReady``, ``InputExpired`` or ``InputFailed``. Looks for an upload itself, so never call it inside a
    transaction.
    """
    reader = services.database.reader(caller.org_id)
    if input_id is not None:
        found = store.get_input(reader, caller.org_id, input_id)
    else:
        found = store.get_input_by_uri(reader, caller.org_id, input_s3_uri or "")
    wanted = region or services.region
    if found.region != wanted:
        raise SettingInvalid(
            "data_residency",
            f"the input is stored in the region '{found.region}' and the job asks for '{wanted}';"
            " give both the same data_residency",
        )
    settled = settle_input(services, found)
    _require_ready(settled)
    return settled


def _require_ready(settled: Input) -> None:
    status = settled.reported_status
    if status is InputStatus.EXPIRED:
        raise InputExpired(
            "the input has expired; create a new one with POST /inputs and send the file again"
        )
    if status is InputStatus.FAILED:
        raise InputFailed(f"the input's copy failed: {settled.error or 'no reason was recorded'}")
    if status is not InputStatus.READY:
        raise InputNotReady(f"the input is not ready (it is {status.value}); submit again once it is")


def _is_past_grace(services: Services, waiting: Input) -> bool:
    """Whether an upload can't land any more. Judged by a time before the look, or one that landed between is lost."""
    grace = timedelta(seconds=services.timings.upload_grace_seconds)
    return waiting.upload_expires_at is not None and waiting.read_at >= waiting.upload_expires_at + grace
