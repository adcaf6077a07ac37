"""What can go wrong, as facts.

The core raises these; ``api.errors`` holds the one table that gives each an HTTP status. Messages are sentences
for the person who sent the request: they name the place and the fix, and nothing internal.
"""

from __future__ import annotations


class AnexError(Exception):
    """Base of every fact below. ``code`` is stable: clients match on it."""

    code = "internal_error"

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


# Who is asking
class KeyInvalid(AnexError):
    """The API key is unknown or revoked."""

    code = "invalid_api_key"


class Frozen(AnexError):
    """An operator holds the API for maintenance."""

    code = "api_frozen"


# What was named
class JobNotFound(AnexError):
    """No such job in this organization."""

    code = "job_not_found"


class InputNotFound(AnexError):
    """No such input in this organization."""

    code = "input_not_found"


class OrganizationNotFound(AnexError):
    """No such organization."""

    code = "organization_not_found"


class KeyNotFound(AnexError):
    """No such API key."""

    code = "key_not_found"


class WebhookNotFound(AnexError):
    """The organization has no webhook endpoint."""

    code = "webhook_not_found"


class WebhookDisabled(AnexError):
    """The organization's webhook endpoint is disabled."""

    code = "webhook_disabled"


class EventNotFound(AnexError):
    """No such event, or one that is never sent."""

    code = "event_not_found"


class ModelUnknown(AnexError):
    """The model is not on offer here."""

    code = "unknown_model"
    field = "model"


# What was asked
class SettingInvalid(AnexError):
    """A submit field is out of range or does not go with the model; ``field`` names it."""

    code = "invalid_setting"

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


class InputContentInvalid(AnexError):
    """The first bytes of an input are not JSONL, or the object is over the size cap."""

    code = "invalid_input_file"


class RequestRefused(AnexError):
    """A request that the contract answers with 400: a missing ``format``, a ``callback_url`` in upload mode."""

    code = "invalid_request"


class SourceTooLarge(AnexError):
    """The source of a copy advertises more bytes than an input may have."""

    code = "source_too_large"


# State
class JobStateConflict(AnexError):
    """The job is in a state that does not allow the action."""

    code = "job_state_conflict"


class ResultUnavailable(AnexError):
    """There is nothing to download."""

    code = "result_unavailable"


class DataDeleted(AnexError):
    """The job's data is gone."""

    code = "data_deleted"


class InputNotReady(AnexError):
    """The input's bytes have not arrived."""

    code = "input_not_ready"


class InputExpired(AnexError):
    """The input's window lapsed or its object is gone."""

    code = "input_expired"


class InputFailed(AnexError):
    """The input's copy failed."""

    code = "input_failed"


class ApprovalQueueFull(AnexError):
    """The organization has as many jobs awaiting approval as it may."""

    code = "approval_queue_full"
    retry_after_seconds = 60


class SampleLimitReached(AnexError):
    """The organization's daily sampled rows are used up."""

    code = "sample_limit_reached"

    def __init__(self, message: str, retry_after_seconds: int) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


# Money
class BalanceTooLow(AnexError):
    """The balance does not cover what was asked."""

    code = "insufficient_credits"


# Our own services
class DatabaseUnavailable(AnexError):
    """Postgres cannot be reached or is on an older schema."""

    code = "service_unavailable"


class BrokerUnavailable(AnexError):
    """Redis or Valkey cannot be reached in time."""

    code = "service_unavailable"


class StorageUnavailable(AnexError):
    """S3 cannot be reached in time."""

    code = "service_unavailable"


class GrammarBusy(AnexError):
    """Every process that compiles grammars is taken, and none became free in time."""

    code = "service_unavailable"


class SealBroken(AnexError):
    """A stored secret can't be opened with the installation's keys."""

    code = "internal_error"


class ObjectMissing(AnexError):
    """No object under this key."""

    code = "object_missing"


class ObjectChanged(AnexError):
    """The object is not the one that was recorded (its ETag differs)."""

    code = "object_changed"


class ModelFilesMissing(AnexError):
    """The model's tokenizer files are not in the bucket; ``anex models pull`` puts them there."""

    code = "model_files_missing"


# The run
class EngineGone(AnexError):
    """The engine died or cut the connection before it answered."""

    code = "engine_gone"


class WaitEnded(AnexError):
    """Whoever waited for room at the engine gave up: the request was not started."""

    code = "wait_ended"


class LeaseLost(AnexError):
    """Another worker holds this piece of work now: what was done here does not count."""

    code = "lease_lost"


class RowsInvalid(AnexError):
    """The input's rows break the contract; ``faults`` are the sentences of ``failure_reason``."""

    code = "invalid_input"

    def __init__(self, faults: list[str]) -> None:
        super().__init__("\n".join(faults))
        self.faults = faults


class EstimateImpossible(AnexError):
    """No price can be given; the message is the job's ``failure_reason`` and states the fix."""

    code = "invalid_input"
