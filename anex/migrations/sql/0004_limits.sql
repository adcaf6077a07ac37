-- Samples are run on the model for nothing: so many rows a day and organization. One row each: the count of the last day with any.

CREATE TABLE sample_days (
    org_id text    PRIMARY KEY REFERENCES organizations,
    day    date    NOT NULL,
    rows   integer NOT NULL CHECK (rows >= 0)
);

ALTER TABLE sample_days ENABLE ROW LEVEL SECURITY;
ALTER TABLE sample_days FORCE ROW LEVEL SECURITY;
CREATE POLICY own_rows ON sample_days TO anex_api USING (org_id = current_setting('anex.org_id', true));
CREATE POLICY all_rows ON sample_days TO anex_work USING (true) WITH CHECK (true);

GRANT SELECT ON sample_days TO anex_api, anex_work;
GRANT INSERT, UPDATE ON sample_days TO anex_work;

-- Rows that were in flight when their engine died, in groups that are tried by themselves (``anex.jobs.suspects``): null for none.
ALTER TABLE chunks ADD COLUMN suspects jsonb;
