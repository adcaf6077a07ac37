-- Samples are run on the model for nothing: so many rows a day and organization. One row each: the count of the last day with any.

CREATE TABLE sample_days (
    org_id text    PRIMARY KEY REFERENCES organizations,
    day    date    NOT NULL,
    rows   integer NOT NULL CHECK (rows >= 0)
);

GRANT SELECT ON sample_days TO anex_api, anex_work;
GRANT INSERT, UPDATE ON sample_days TO anex_work;

-- Rows that were in flight when their engine died, in groups that are tried by themselves (``anex.jobs.suspects``): null for none.
ALTER TABLE chunks ADD COLUMN suspects jsonb;

-- How fast this installation serves its models: how long engines took to start, and when chunks ran (``anex.units.speed``).
CREATE TABLE engine_starts (
    id             bigint           GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    region         text             NOT NULL CHECK (region IN ('world', 'eu')),
    model          text             NOT NULL,
    model_revision text             NOT NULL,
    seconds        double precision NOT NULL CHECK (seconds >= 0),
    at             timestamptz      NOT NULL
);
CREATE INDEX starts_of_model ON engine_starts (region, model, id);
GRANT SELECT, INSERT, DELETE ON engine_starts TO anex_work;
ALTER TABLE chunks
    ADD COLUMN claimed_at timestamptz,
    ADD COLUMN ended_at   timestamptz,
    ADD COLUMN ran_by     text;
CREATE INDEX chunks_measured ON chunks (ended_at) WHERE state = 'done';

-- A schema's properties are generated in the order in which they stand: jsonb sorts them.
ALTER TABLE jobs ALTER COLUMN response_format TYPE json USING response_format::json;

-- What is purged by age is found by it.
CREATE INDEX jobs_to_purge ON jobs (data_expires_at) WHERE data_deleted_at IS NULL;
CREATE INDEX inputs_to_purge ON inputs (created_at) WHERE data_deleted_at IS NULL;

-- Webhooks and ingest callbacks.

-- One endpoint an organization. Secrets are sealed (``anex.sealing``); the previous one signs beside the present one until its time
-- is over. ``failing_since`` is the first failed attempt since the last success.
CREATE TABLE webhook_endpoints (
    org_id          text        PRIMARY KEY REFERENCES organizations,
    url             text        NOT NULL,
    host            text        NOT NULL,
    secret          bytea       NOT NULL,
    previous_secret bytea,
    previous_until  timestamptz,
    created_at      timestamptz NOT NULL,
    failing_since   timestamptz,
    last_success_at timestamptz,
    disabled_at     timestamptz,
    disabled_reason text,
    CONSTRAINT previous_secret_has_an_end CHECK ((previous_secret IS NULL) = (previous_until IS NULL)),
    CONSTRAINT disabled_endpoint_says_why CHECK ((disabled_at IS NULL) = (disabled_reason IS NULL))
);

-- The outbox: what is to be told to somebody's server, written in the transaction of what it tells. A job's event is the row of
-- ``job_events`` with the same id; a test of an endpoint and a callback have no other row. ``place`` orders the events of a job.
-- ``attempts`` counts all that ended, ``failures`` those of the present run through the schedule. Leased and fenced like a chunk.
CREATE TABLE deliveries (
    event_id    text        PRIMARY KEY,
    place       bigint      GENERATED ALWAYS AS IDENTITY,
    org_id      text        NOT NULL REFERENCES organizations,
    region      text        NOT NULL CHECK (region IN ('world', 'eu')),
    type        text        NOT NULL CONSTRAINT event_type_is_known
                            CHECK (type IN ('submitted', 'estimating', 'cost_ready', 'in_progress', 'completed', 'failed', 'cancelled',
                                            'test', 'input.ready', 'input.failed')),
    job_id      text        REFERENCES jobs,
    input_id    text        CONSTRAINT one_callback_per_input UNIQUE REFERENCES inputs,
    host        text        NOT NULL,
    occurred_at timestamptz NOT NULL,
    state       text        NOT NULL DEFAULT 'waiting' CONSTRAINT delivery_state_is_known
                            CHECK (state IN ('waiting', 'delivered', 'given_up')),
    attempts    integer     NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    failures    integer     NOT NULL DEFAULT 0 CHECK (failures >= 0),
    due_at      timestamptz,
    fence       integer     NOT NULL DEFAULT 0,
    lease_until timestamptz,
    ended_at    timestamptz,
    CONSTRAINT one_delivery_per_event UNIQUE (job_id, type),
    CONSTRAINT delivery_tells_of_one_thing CHECK (
        CASE WHEN type = 'test' THEN job_id IS NULL AND input_id IS NULL
             WHEN type LIKE 'input.%' THEN job_id IS NULL AND input_id IS NOT NULL
             ELSE job_id IS NOT NULL AND input_id IS NULL END),
    CONSTRAINT waiting_delivery_is_due CHECK ((state = 'waiting') = (due_at IS NOT NULL)),
    CONSTRAINT ended_delivery_has_an_end CHECK ((state = 'waiting') = (ended_at IS NULL)),
    CONSTRAINT ended_delivery_has_no_lease CHECK (state = 'waiting' OR lease_until IS NULL)
);
CREATE INDEX deliveries_due ON deliveries (due_at, place) WHERE state = 'waiting';
CREATE INDEX deliveries_leased ON deliveries (lease_until) WHERE lease_until IS NOT NULL;
CREATE INDEX deliveries_of_organization ON deliveries (org_id, place);

-- Each try: the receiver's status, how long it took, and the first bytes of what it said, or why there was no answer.
CREATE TABLE delivery_attempts (
    event_id              text        NOT NULL REFERENCES deliveries,
    attempt               integer     NOT NULL CHECK (attempt >= 1),
    org_id                text        NOT NULL REFERENCES organizations,
    begun_at              timestamptz NOT NULL,
    duration_milliseconds integer     NOT NULL CHECK (duration_milliseconds >= 0),
    status                integer,
    answer                text        NOT NULL,
    error                 text,
    PRIMARY KEY (event_id, attempt)
);
CREATE INDEX attempts_by_age ON delivery_attempts (begun_at);

DO $$
DECLARE t text;
BEGIN
    FOREACH t IN ARRAY ARRAY['sample_days', 'webhook_endpoints', 'deliveries', 'delivery_attempts'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', t);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', t);
        EXECUTE format('CREATE POLICY own_rows ON %I TO anex_api USING (org_id = current_setting(''anex.org_id'', true))'
                       ' WITH CHECK (org_id = current_setting(''anex.org_id'', true))', t);
        EXECUTE format('CREATE POLICY all_rows ON %I TO anex_work USING (true) WITH CHECK (true)', t);
    END LOOP;
END $$;

-- What serves customers writes into the outbox and learns how the endpoint fares; it reads no secret.
GRANT SELECT (org_id, host, failing_since, disabled_at) ON webhook_endpoints TO anex_api;
GRANT SELECT, INSERT ON deliveries TO anex_api, anex_work;
GRANT UPDATE ON deliveries TO anex_work;
GRANT SELECT ON delivery_attempts TO anex_api, anex_work;
GRANT INSERT, DELETE ON delivery_attempts TO anex_work;
GRANT SELECT, INSERT, UPDATE ON webhook_endpoints TO anex_work;
