"""Sweep the keys of deleted inputs once more when their upload forms have expired.

A form can't be taken back: who still holds one may send the file again after the data was deleted. What lands so belongs to no
input; it goes as soon as nothing more can land.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from anex.errors import StorageUnavailable
from anex.object_keys import input_key

if TYPE_CHECKING:
    from anex.services import Services

log = structlog.get_logger(__name__)

_DUE = """
SELECT id, org_id FROM inputs
WHERE region = %(region)s AND data_deleted_at IS NOT NULL AND NOT swept_after_form
  AND upload_expires_at <= anex_now() - %(grace)s * interval '1 second'
ORDER BY upload_expires_at LIMIT %(batch)s
"""

_MARK_SWEPT = "UPDATE inputs SET swept_after_form = true WHERE id = %(id)s"


def sweep_expired_forms(services: Services, batch: int) -> int:
    """Erase what was sent with expired forms of deleted inputs; return how many inputs were swept.

    What a failing store keeps now is tried again by the next sweep.
    """
    wanted = {
        "region": services.region,
        "grace": services.timings.upload_grace_seconds,
        "batch": batch,
    }
    with services.database.transaction() as transaction:
        due = transaction.fetch_dicts(_DUE, wanted)
    try:
        for row in due:
            services.objects.erase(input_key(row["org_id"], row["id"]))
            with services.database.transaction() as transaction:
                transaction.execute(_MARK_SWEPT, {"id": row["id"]})
    except StorageUnavailable as unavailable:
        log.warning("forms_not_swept", error=unavailable.message)
    return len(due)
