ALTER TABLE provider_observations DROP COLUMN held_by;
