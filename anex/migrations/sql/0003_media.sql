-- Media in rows, and jobs whose rows are embedded or decided upon.

-- What media of a span's rows come to at most, and what was billed of a chunk's (see ``anex.usage``). ``media_tokens`` are part of
-- ``input_tokens``.
ALTER TABLE spans
    ADD COLUMN media_tokens      bigint NOT NULL DEFAULT 0 CHECK (media_tokens >= 0),
    ADD COLUMN images            bigint NOT NULL DEFAULT 0 CHECK (images >= 0),
    ADD COLUMN clips             bigint NOT NULL DEFAULT 0 CHECK (clips >= 0),
    ADD COLUMN clip_milliseconds bigint NOT NULL DEFAULT 0 CHECK (clip_milliseconds >= 0),
    ADD CONSTRAINT media_tokens_are_input CHECK (input_tokens IS NULL OR media_tokens <= input_tokens);
ALTER TABLE chunks
    ADD COLUMN media_tokens      bigint NOT NULL DEFAULT 0 CHECK (media_tokens >= 0),
    ADD COLUMN images            bigint NOT NULL DEFAULT 0 CHECK (images >= 0),
    ADD COLUMN clips             bigint NOT NULL DEFAULT 0 CHECK (clips >= 0),
    ADD COLUMN clip_milliseconds bigint NOT NULL DEFAULT 0 CHECK (clip_milliseconds >= 0),
    ADD CONSTRAINT media_tokens_are_billed_input CHECK (media_tokens <= input_tokens);

-- What hosts said about the lengths of clips, by a hash of their address: what was checked and priced with them runs with them.
ALTER TABLE jobs ADD COLUMN clip_lengths jsonb;
