ALTER TABLE controllers DROP COLUMN heartbeat_ms;
