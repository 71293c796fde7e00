ALTER TABLE provider_observations DROP COLUMN set_aside_at;
