ALTER TABLE controllers DROP COLUMN wal_history, DROP COLUMN beat;
ALTER TABLE cluster_state DROP COLUMN restored_at, DROP COLUMN wal_history;
