-- Inputs that are copied from a URL, the region of a GPU unit, and the switch that freezes the API.

-- The copy of an input is leased like a step of a job: ``copy_fence`` grows with each claim, only its holder may settle the input.
-- A source URL may carry a signature, so its query goes when the copy ends. The callback's secret is stored encrypted.
ALTER TABLE inputs
    ADD COLUMN source_url       text,
    ADD COLUMN callback_url     text,
    ADD COLUMN callback_secret  bytea,
    ADD COLUMN copied_bytes     bigint      NOT NULL DEFAULT 0 CHECK (copied_bytes >= 0),
    ADD COLUMN copy_fence       integer     NOT NULL DEFAULT 0,
    ADD COLUMN copy_lease_until timestamptz,
    ADD COLUMN copy_attempts    integer     NOT NULL DEFAULT 0 CHECK (copy_attempts >= 0),
    ADD COLUMN rung_at          timestamptz,
    ADD COLUMN rings            integer     NOT NULL DEFAULT 0,
    ADD CONSTRAINT copied_input_has_source CHECK (status NOT IN ('pending', 'copying') OR (source_url IS NOT NULL AND rung_at IS NOT NULL)),
    ADD CONSTRAINT failed_input_says_why CHECK (status <> 'failed' OR error IS NOT NULL),
    ADD CONSTRAINT callback_has_secret CHECK ((callback_url IS NULL) = (callback_secret IS NULL)),
    ADD CONSTRAINT settled_source_has_no_query CHECK (status IN ('pending', 'copying') OR source_url IS NULL OR position('?' IN source_url) = 0);
CREATE INDEX inputs_to_copy ON inputs (rung_at) WHERE status IN ('pending', 'copying');

-- A file can be sent again with a form that is still valid after the input's data was deleted: its key is swept once more when no
-- upload can land any longer.
ALTER TABLE inputs ADD COLUMN swept_after_form boolean NOT NULL DEFAULT false;
CREATE INDEX inputs_to_sweep_again ON inputs (upload_expires_at) WHERE data_deleted_at IS NOT NULL AND NOT swept_after_form;

-- A unit serves one region's jobs.
ALTER TABLE units ADD COLUMN region text NOT NULL DEFAULT 'world' CHECK (region IN ('world', 'eu'));
ALTER TABLE units ALTER COLUMN region DROP DEFAULT;

-- While its one row stands, the API serves polling and downloads only.
CREATE TABLE api_freeze (
    one    boolean     PRIMARY KEY DEFAULT true CHECK (one),
    reason text        NOT NULL DEFAULT '',
    since  timestamptz NOT NULL
);
GRANT SELECT ON api_freeze TO anex_api, anex_work;
GRANT INSERT, UPDATE, DELETE ON api_freeze TO anex_work;
