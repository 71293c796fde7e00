DROP VIEW agent_silence;
ALTER TABLE controllers DROP COLUMN listening_since, DROP COLUMN listening_until;
DROP TABLE listening;
