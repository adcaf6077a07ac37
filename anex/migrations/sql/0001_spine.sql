-- The spine: organizations, keys, inputs, jobs, their pieces of work, and the ledger.
--
-- Roles (made before the first migration, see deploy/roles.sql): anex_owner runs this file; anex_api serves customers behind
-- row-level security; anex_work runs planners, workers and operators' commands and sees every organization.

-- Time ------------------------------------------------------------------------------------------------------------

-- Tests shift time by one row here; an installation has none. Only the owner may write it.
CREATE TABLE clock_shift (
    one   boolean  PRIMARY KEY DEFAULT true CHECK (one),
    shift interval NOT NULL
);

-- The one time that SQL reads. STABLE over a statement: a lease that is judged expired stays so within it.
CREATE FUNCTION anex_now() RETURNS timestamptz LANGUAGE sql STABLE AS $$
    SELECT statement_timestamp() + coalesce((SELECT shift FROM clock_shift), interval '0')
$$;

-- Organizations and keys ------------------------------------------------------------------------------------------

CREATE TABLE organizations (
    id                         text        PRIMARY KEY,
    name                       text        NOT NULL CHECK (length(name) BETWEEN 1 AND 200),
    eu_routing                 boolean     NOT NULL DEFAULT false,
    auto_approve               boolean     NOT NULL DEFAULT false,
    auto_approve_ceiling_cents bigint      CONSTRAINT ceiling_not_negative CHECK (auto_approve_ceiling_cents >= 0),
    created_at                 timestamptz NOT NULL
);

-- Only the SHA-256 of a key is kept, and its first 8 characters for people to recognise it by.
CREATE TABLE api_keys (
    id         text        PRIMARY KEY,
    org_id     text        NOT NULL REFERENCES organizations,
    name       text        NOT NULL,
    key_sha256 bytea       NOT NULL CONSTRAINT key_hash_is_unique UNIQUE CHECK (length(key_sha256) = 32),
    hint       text        NOT NULL CHECK (length(hint) = 8),
    created_at timestamptz NOT NULL,
    revoked_at timestamptz
);
CREATE INDEX api_keys_of_organization ON api_keys (org_id);

-- Inputs ----------------------------------------------------------------------------------------------------------

CREATE TABLE inputs (
    id                text        PRIMARY KEY,
    org_id            text        NOT NULL REFERENCES organizations,
    region            text        NOT NULL CHECK (region IN ('world', 'eu')),
    format            text        NOT NULL CHECK (format = 'jsonl'),
    status            text        NOT NULL CONSTRAINT input_status_is_known
                                  CHECK (status IN ('awaiting_upload', 'pending', 'copying', 'ready', 'failed', 'expired')),
    object_uri        text        NOT NULL CONSTRAINT object_uri_is_unique UNIQUE,
    object_key        text        NOT NULL,
    size_bytes        bigint      CHECK (size_bytes >= 0),
    upload_expires_at timestamptz,
    data_expires_at   timestamptz,
    error             text,
    created_at        timestamptz NOT NULL,
    created_by        text        REFERENCES api_keys,
    data_deleted_at   timestamptz,
    CONSTRAINT ready_input_has_deadline CHECK (status <> 'ready' OR (data_expires_at IS NOT NULL AND size_bytes IS NOT NULL))
);
CREATE INDEX inputs_of_organization ON inputs (org_id);

-- Jobs ------------------------------------------------------------------------------------------------------------

CREATE TABLE jobs (
    id                text        PRIMARY KEY,
    org_id            text        NOT NULL REFERENCES organizations,
    region            text        NOT NULL CHECK (region IN ('world', 'eu')),
    input_id          text        NOT NULL REFERENCES inputs,
    status            text        NOT NULL CONSTRAINT job_status_is_known
                                  CHECK (status IN ('submitted', 'estimating', 'cost_ready', 'in_progress', 'cancelling',
                                                    'finalizing', 'done', 'failed', 'cancelled')),

    -- What was asked for. Never changes.
    model             text        NOT NULL,
    model_queue       text        NOT NULL,
    task_type         text        NOT NULL CHECK (task_type IN ('chat', 'embed', 'decide')),
    asked_max_tokens  integer     CONSTRAINT asked_cap_in_range CHECK (asked_max_tokens BETWEEN 1 AND 32768),
    asked_budget      integer     CONSTRAINT asked_budget_in_range CHECK (asked_budget BETWEEN 0 AND 32768),
    reasoning         boolean,
    reasoning_effort  text,
    video_fps         double precision CHECK (video_fps > 0),
    dimensions        integer     CHECK (dimensions > 0),
    response_format   jsonb,
    samples_rows      boolean     NOT NULL,

    -- The plan: which step comes next, and who works on it. A doorbell may be lost, so ``rung_at`` says when to ring again.
    step              text        CONSTRAINT step_is_known CHECK (step IN ('validate', 'count', 'sample', 'estimate', 'finalize')),
    step_fence        integer     NOT NULL DEFAULT 0,
    step_lease_until  timestamptz,
    step_started_at   timestamptz,
    rung_at           timestamptz NOT NULL,
    rings             integer     NOT NULL DEFAULT 0,
    bytes_checked     bigint      NOT NULL DEFAULT 0,
    rows_checked      bigint      NOT NULL DEFAULT 0,
    spans_open        integer     NOT NULL DEFAULT 0 CONSTRAINT spans_open_not_negative CHECK (spans_open >= 0),
    chunks_open       integer     NOT NULL DEFAULT 0 CONSTRAINT chunks_open_not_negative CHECK (chunks_open >= 0),

    -- What validation found. What was validated is what runs: later reads are conditional on the ETag.
    input_etag        text,
    input_size_bytes  bigint,
    total_rows        bigint      CHECK (total_rows > 0),

    -- The estimate, and everything that was approved with it. Frozen at cost_ready.
    est_input_tok          bigint  CHECK (est_input_tok >= 0),
    est_output_tok         bigint  CHECK (est_output_tok >= 0),
    est_cost_cents         bigint  CONSTRAINT estimate_costs_a_cent CHECK (est_cost_cents >= 1),
    est_processing_seconds bigint  CHECK (est_processing_seconds >= 0),
    max_output_tokens      integer CHECK (max_output_tokens >= 0),
    reasoning_budget       integer CHECK (reasoning_budget >= 0),
    terms                  jsonb,
    model_revision         text,
    catalog_hash           text,

    -- The end.
    success_rows      bigint CHECK (success_rows >= 0),
    error_rows        bigint CHECK (error_rows >= 0),
    format_error_rows bigint CHECK (format_error_rows >= 0),
    truncated_rows    bigint CHECK (truncated_rows >= 0),
    pending_rows      bigint CHECK (pending_rows >= 0),
    input_tokens      bigint CHECK (input_tokens >= 0),
    output_tokens     bigint CHECK (output_tokens >= 0),
    cost_cents        bigint CHECK (cost_cents >= 0),
    failure_code      text   CHECK (failure_code IN ('invalid_input', 'internal_error')),
    failure_reason    text,
    result_key        text,
    result_etag       text,
    result_size_bytes bigint,
    result_rows       bigint CHECK (result_rows >= 0),
    delete_requested  boolean NOT NULL DEFAULT false,

    created_at        timestamptz NOT NULL,
    cost_ready_at     timestamptz,
    approval_expires_at timestamptz,
    approved_at       timestamptz,
    finished_at       timestamptz,
    data_expires_at   timestamptz,
    data_deleted_at   timestamptz,

    CONSTRAINT charge_within_estimate CHECK (cost_cents <= est_cost_cents),
    CONSTRAINT priced_job_is_complete CHECK (
        status NOT IN ('cost_ready', 'in_progress', 'cancelling', 'finalizing', 'done')
        OR (est_cost_cents IS NOT NULL AND terms IS NOT NULL AND total_rows IS NOT NULL AND approval_expires_at IS NOT NULL)),
    CONSTRAINT ended_job_has_an_end CHECK (
        (status IN ('done', 'failed', 'cancelled')) = (finished_at IS NOT NULL)),
    CONSTRAINT every_row_is_accounted_for CHECK (
        status <> 'done' OR (success_rows + error_rows + format_error_rows + truncated_rows = total_rows AND pending_rows = 0)),
    CONSTRAINT failed_job_says_why CHECK (status <> 'failed' OR (failure_code IS NOT NULL AND failure_reason IS NOT NULL))
);
CREATE INDEX jobs_awaiting_approval ON jobs (org_id) WHERE status IN ('submitted', 'estimating', 'cost_ready');
CREATE INDEX jobs_with_a_step ON jobs (rung_at) WHERE step IS NOT NULL;
CREATE INDEX jobs_running ON jobs (model_queue, approved_at) WHERE status = 'in_progress';
CREATE INDEX jobs_waiting_to_expire ON jobs (approval_expires_at) WHERE status = 'cost_ready';
CREATE INDEX jobs_of_input ON jobs (input_id);

-- The legal moves; ``anex.jobs.transitions`` holds the same table and a test compares the two.
CREATE TABLE job_moves (
    from_status text NOT NULL,
    to_status   text NOT NULL,
    PRIMARY KEY (from_status, to_status)
);
INSERT INTO job_moves (from_status, to_status) VALUES
    ('submitted', 'estimating'), ('submitted', 'cost_ready'), ('submitted', 'failed'), ('submitted', 'cancelled'),
    ('estimating', 'cost_ready'), ('estimating', 'failed'), ('estimating', 'cancelled'),
    ('cost_ready', 'in_progress'), ('cost_ready', 'cancelled'),
    ('in_progress', 'finalizing'), ('in_progress', 'cancelling'), ('in_progress', 'cancelled'), ('in_progress', 'failed'),
    ('cancelling', 'cancelled'), ('cancelling', 'failed'),
    ('finalizing', 'done'), ('finalizing', 'failed');

CREATE FUNCTION job_move_is_legal() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM job_moves WHERE from_status = OLD.status AND to_status = NEW.status) THEN
        RAISE EXCEPTION 'a job never moves from % to %', OLD.status, NEW.status
            USING ERRCODE = 'check_violation', CONSTRAINT = 'job_move_is_legal';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER job_move_is_legal BEFORE UPDATE OF status ON jobs
    FOR EACH ROW WHEN (OLD.status IS DISTINCT FROM NEW.status) EXECUTE FUNCTION job_move_is_legal();

-- One row per transition, written in the transition's own transaction: the job's history, and what webhooks are sent from.
CREATE TABLE job_events (
    id          text        PRIMARY KEY,
    org_id      text        NOT NULL REFERENCES organizations,
    job_id      text        NOT NULL REFERENCES jobs,
    from_status text,
    to_status   text        NOT NULL,
    at          timestamptz NOT NULL,
    key_id      text        REFERENCES api_keys,
    CONSTRAINT one_event_per_transition UNIQUE (job_id, to_status)
);

-- What a key did to a job without moving it on its own: a repeated cancel, a deletion.
CREATE TABLE job_actions (
    id     bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    org_id text        NOT NULL REFERENCES organizations,
    job_id text        NOT NULL REFERENCES jobs,
    action text        NOT NULL CHECK (action IN ('submit', 'approve', 'cancel', 'delete')),
    key_id text        REFERENCES api_keys,
    at     timestamptz NOT NULL
);
CREATE INDEX actions_of_job ON job_actions (job_id);

-- Rows never become table rows: a span is a run of lines of the input (at most 8 MiB or 8,192 rows) with the byte offset of every
-- 64th row in it, so that chunks can be cut anywhere between. ``output_room`` is the sum over its rows of the output that fits: the
-- asked cap (or the model's), or what the row's input leaves of the context.
CREATE TABLE spans (
    job_id        text     NOT NULL REFERENCES jobs,
    span_index    integer  NOT NULL,
    org_id        text     NOT NULL REFERENCES organizations,
    first_row     bigint   NOT NULL CHECK (first_row >= 1),
    row_count     integer  NOT NULL CHECK (row_count >= 1),
    first_line    bigint   NOT NULL CHECK (first_line >= 1),
    start_byte    bigint   NOT NULL CHECK (start_byte >= 0),
    end_byte      bigint   NOT NULL,
    cut_bytes     bigint[] NOT NULL,
    cut_lines     bigint[] NOT NULL,
    state         text     NOT NULL CHECK (state IN ('ready', 'leased', 'done')),
    fence         integer  NOT NULL DEFAULT 0,
    lease_until   timestamptz,
    input_tokens  bigint   CHECK (input_tokens >= 0),
    output_room   bigint   CHECK (output_room >= 0),
    PRIMARY KEY (job_id, span_index),
    CONSTRAINT span_has_bytes CHECK (end_byte > start_byte),
    CONSTRAINT counted_span_has_tokens CHECK (state <> 'done' OR (input_tokens IS NOT NULL AND output_room IS NOT NULL))
);
CREATE INDEX spans_to_count ON spans (job_id, span_index) WHERE state <> 'done';

-- Which rows the sample runs (numbers and places only), and how long their answers were. Never their text.
CREATE TABLE samples (
    job_id     text  PRIMARY KEY REFERENCES jobs,
    org_id     text  NOT NULL REFERENCES organizations,
    drawn      jsonb NOT NULL,
    lengths    jsonb,
    sampled_at timestamptz
);

-- A chunk is what one claim runs: a contiguous run of rows. ``fence`` grows with each claim; only its holder may complete.
CREATE TABLE chunks (
    job_id           text     NOT NULL REFERENCES jobs,
    chunk_index      integer  NOT NULL,
    org_id           text     NOT NULL REFERENCES organizations,
    model_queue      text     NOT NULL,
    first_row        bigint   NOT NULL CHECK (first_row >= 1),
    row_count        integer  NOT NULL CHECK (row_count >= 1),
    first_line       bigint   NOT NULL CHECK (first_line >= 1),
    start_byte       bigint   NOT NULL CHECK (start_byte >= 0),
    end_byte         bigint   NOT NULL,
    expected_tokens  bigint   NOT NULL,
    expected_seconds double precision NOT NULL,
    state            text     NOT NULL CHECK (state IN ('planned', 'ready', 'leased', 'done', 'dropped')),
    fence            integer  NOT NULL DEFAULT 0,
    lease_until      timestamptz,
    leased_by        text,
    attempts         integer  NOT NULL DEFAULT 0,
    rows_done        integer  NOT NULL DEFAULT 0,
    checkpoint_key   text,
    checkpoint_etag  text,
    success_rows     integer  NOT NULL DEFAULT 0,
    error_rows       integer  NOT NULL DEFAULT 0,
    format_error_rows integer NOT NULL DEFAULT 0,
    truncated_rows   integer  NOT NULL DEFAULT 0,
    input_tokens     bigint   NOT NULL DEFAULT 0,
    output_tokens    bigint   NOT NULL DEFAULT 0,
    part_key         text,
    part_etag        text,
    part_size_bytes  bigint,
    PRIMARY KEY (job_id, chunk_index),
    CONSTRAINT chunk_has_bytes CHECK (end_byte > start_byte),
    CONSTRAINT leased_chunk_has_lease CHECK ((state = 'leased') = (lease_until IS NOT NULL)),
    CONSTRAINT done_chunk_has_part CHECK (state <> 'done' OR (part_key IS NOT NULL AND part_etag IS NOT NULL)),
    CONSTRAINT chunk_rows_within CHECK (success_rows + error_rows + format_error_rows + truncated_rows <= row_count)
);
CREATE INDEX chunks_to_run ON chunks (model_queue, job_id, chunk_index) WHERE state = 'ready';
CREATE INDEX chunks_leased ON chunks (lease_until) WHERE state = 'leased';

-- GPU units that are alive: who serves what, and whether its engine is ready.
CREATE TABLE units (
    id             text        PRIMARY KEY,
    model          text        NOT NULL,
    model_queue    text        NOT NULL,
    model_revision text        NOT NULL,
    slots          integer     NOT NULL CHECK (slots >= 1),
    engine_state   text        NOT NULL CHECK (engine_state IN ('starting', 'ready', 'sick', 'draining')),
    detail         text        NOT NULL DEFAULT '',
    started_at     timestamptz NOT NULL,
    heartbeat_at   timestamptz NOT NULL,
    claimed_at     timestamptz
);

-- The ledger ------------------------------------------------------------------------------------------------------
--
-- Double entry: every transfer moves an amount from one account to another. An organization has two accounts, ``available`` and
-- ``held``; the house has ``issuance`` (credits come from it) and ``revenue``. The organization's balances are kept by the trigger
-- below and by nothing else: no role may update them. Shape after TigerBeetle's two-phase transfers.

CREATE TABLE accounts (
    org_id          text   PRIMARY KEY REFERENCES organizations,
    available_nanos bigint NOT NULL DEFAULT 0 CONSTRAINT available_never_below_zero CHECK (available_nanos >= 0),
    held_nanos      bigint NOT NULL DEFAULT 0 CONSTRAINT held_never_below_zero CHECK (held_nanos >= 0)
);

CREATE TABLE transfers (
    id              text        PRIMARY KEY,
    org_id          text        NOT NULL REFERENCES accounts,
    kind            text        NOT NULL,
    debit           text        NOT NULL,
    credit          text        NOT NULL,
    amount_nanos    bigint      NOT NULL CONSTRAINT amount_is_positive CHECK (amount_nanos > 0),
    job_id          text        REFERENCES jobs,
    key_id          text        REFERENCES api_keys,
    idempotency_key text        CONSTRAINT idempotency_key_is_unique UNIQUE,
    reason          text        NOT NULL DEFAULT '',
    at              timestamptz NOT NULL,
    CONSTRAINT kind_moves_between_its_accounts CHECK ((kind, debit, credit) IN (
        ('grant', 'issuance', 'available'),
        ('hold', 'available', 'held'),
        ('charge', 'held', 'revenue'),
        ('release', 'held', 'available'))),
    CONSTRAINT job_kinds_name_a_job CHECK ((kind IN ('hold', 'charge', 'release')) = (job_id IS NOT NULL))
);
CREATE UNIQUE INDEX one_transfer_of_a_kind_per_job ON transfers (job_id, kind);
CREATE INDEX transfers_of_organization ON transfers (org_id, at);

-- One hold per job for ever, resolved once.
CREATE TABLE holds (
    job_id       text        PRIMARY KEY REFERENCES jobs,
    org_id       text        NOT NULL REFERENCES accounts,
    amount_nanos bigint      NOT NULL CHECK (amount_nanos > 0),
    state        text        NOT NULL CHECK (state IN ('held', 'settled')),
    charged_nanos bigint     CONSTRAINT charge_within_hold CHECK (charged_nanos BETWEEN 0 AND amount_nanos),
    held_at      timestamptz NOT NULL,
    settled_at   timestamptz,
    CONSTRAINT settled_hold_has_a_charge CHECK ((state = 'settled') = (charged_nanos IS NOT NULL AND settled_at IS NOT NULL))
);

CREATE FUNCTION apply_transfer() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    UPDATE accounts SET
        available_nanos = available_nanos
            + CASE WHEN NEW.credit = 'available' THEN NEW.amount_nanos ELSE 0 END
            - CASE WHEN NEW.debit = 'available' THEN NEW.amount_nanos ELSE 0 END,
        held_nanos = held_nanos
            + CASE WHEN NEW.credit = 'held' THEN NEW.amount_nanos ELSE 0 END
            - CASE WHEN NEW.debit = 'held' THEN NEW.amount_nanos ELSE 0 END
    WHERE org_id = NEW.org_id;
    RETURN NULL;
END $$;
CREATE TRIGGER apply_transfer AFTER INSERT ON transfers FOR EACH ROW EXECUTE FUNCTION apply_transfer();

CREATE FUNCTION never_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% rows are never changed or removed', TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
END $$;
CREATE TRIGGER transfers_are_immutable BEFORE UPDATE OR DELETE ON transfers FOR EACH ROW EXECUTE FUNCTION never_changed();
CREATE TRIGGER transfers_are_never_emptied BEFORE TRUNCATE ON transfers FOR EACH STATEMENT EXECUTE FUNCTION never_changed();
CREATE TRIGGER events_are_immutable BEFORE UPDATE OR DELETE ON job_events FOR EACH ROW EXECUTE FUNCTION never_changed();

-- Tenancy ---------------------------------------------------------------------------------------------------------
--
-- anex_api sees the rows of the organization that its transaction names, and none when it names none.

ALTER TABLE organizations ENABLE ROW LEVEL SECURITY;
ALTER TABLE organizations FORCE ROW LEVEL SECURITY;
CREATE POLICY own_organization ON organizations TO anex_api USING (id = current_setting('anex.org_id', true));
CREATE POLICY all_organizations ON organizations TO anex_work USING (true) WITH CHECK (true);

DO $$
DECLARE t text;
BEGIN
    FOREACH t IN ARRAY ARRAY['api_keys', 'inputs', 'jobs', 'job_events', 'job_actions', 'spans', 'samples', 'chunks',
                             'accounts', 'transfers', 'holds'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', t);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', t);
        EXECUTE format('CREATE POLICY own_rows ON %I TO anex_api USING (org_id = current_setting(''anex.org_id'', true))'
                       ' WITH CHECK (org_id = current_setting(''anex.org_id'', true))', t);
        EXECUTE format('CREATE POLICY all_rows ON %I TO anex_work USING (true) WITH CHECK (true)', t);
    END LOOP;
END $$;

-- Credits come from operators' commands: what serves customers moves money that is there and makes none.
CREATE POLICY customers_grant_nothing ON transfers AS RESTRICTIVE FOR INSERT TO anex_api WITH CHECK (kind <> 'grant');

-- Before the organization is known, a request proves itself by the hash of its key and sees that one key.
CREATE POLICY presented_key ON api_keys FOR SELECT TO anex_api
    USING (encode(key_sha256, 'hex') = current_setting('anex.key_sha256', true));
-- The ledger's trigger runs as the owner, which FORCE puts behind the wall too.
CREATE POLICY kept_by_trigger ON accounts TO anex_owner USING (true) WITH CHECK (true);

GRANT USAGE ON SCHEMA public TO anex_api, anex_work;
GRANT SELECT ON clock_shift, job_moves TO anex_api, anex_work;
GRANT SELECT ON organizations, api_keys, inputs, jobs, job_events, job_actions, spans, samples, chunks, accounts, transfers, holds
    TO anex_api, anex_work;
GRANT UPDATE ON organizations TO anex_work;
-- A row lock needs UPDATE on one column: the counted limits lock the organization's row.
GRANT UPDATE (name) ON organizations TO anex_api;
GRANT INSERT ON inputs, jobs, job_events, job_actions, transfers, holds TO anex_api, anex_work;
GRANT UPDATE ON inputs, jobs, chunks, holds TO anex_api, anex_work;
GRANT INSERT ON organizations, api_keys, spans, samples, chunks TO anex_work;
-- Accounts begin empty: no role may name a balance.
GRANT INSERT (org_id) ON accounts TO anex_work;
GRANT UPDATE ON api_keys, spans, samples TO anex_work;
GRANT DELETE ON spans, samples TO anex_work;
GRANT SELECT, INSERT, UPDATE, DELETE ON units TO anex_work;
GRANT SELECT ON units TO anex_api;
-- Every process reads the schema's revision when it starts.
GRANT SELECT ON alembic_version TO anex_api, anex_work;
