-- What new systems are given for their first boot, sealed. The id is a keyed digest of the content, so that many
-- operations share one row; an operation names it in its request as "seed".
CREATE TABLE system_seeds (
    seed_id text PRIMARY KEY CHECK (length(seed_id) BETWEEN 1 AND 128),
    sealed  bytea       NOT NULL,
    used_at timestamptz NOT NULL
);
