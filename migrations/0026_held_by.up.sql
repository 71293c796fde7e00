-- What shows that somebody else has the machine at its provider; empty if it is ours, or nobody's.

ALTER TABLE provider_observations ADD COLUMN held_by text NOT NULL DEFAULT '';
