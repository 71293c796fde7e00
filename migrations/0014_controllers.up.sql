-- The longest heartbeat interval that this controller has told any of the sessions that it holds; 0 is the configured one.
-- Who judges silence must wait for the slowest.
ALTER TABLE controllers ADD COLUMN heartbeat_ms bigint NOT NULL DEFAULT 0;
