ALTER TABLE controllers DROP COLUMN jobs_until;
