-- What controllers need to notice that the database has lost what was committed before.

ALTER TABLE cluster_state
    -- The history of the WAL, system identifier and timeline, that the controllers have compared with what they saw committed.
    -- Empty before the first comparison.
    ADD COLUMN wal_history text NOT NULL DEFAULT '',
    -- The last restore, told or noticed. Grants from before it may be unknown.
    ADD COLUMN restored_at timestamptz;

ALTER TABLE controllers
    -- Counted up about once a second. A controller that remembers a higher number has seen more than the database has.
    ADD COLUMN beat        bigint NOT NULL DEFAULT 0,
    -- The history that this controller has compared; empty for a controller of an older version.
    ADD COLUMN wal_history text NOT NULL DEFAULT '';
