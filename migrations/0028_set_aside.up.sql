-- When the machine's last work ended, until its provider was asked again: what was seen before is compared with nothing.

ALTER TABLE provider_observations ADD COLUMN set_aside_at timestamptz;
