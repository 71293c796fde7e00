ALTER TABLE controllers DROP COLUMN draining_since;
ALTER TABLE controllers DROP COLUMN hostname;
DROP TRIGGER rollouts_moved ON rollouts;
DROP TRIGGER rollouts_begun ON rollouts;
DROP FUNCTION webhook_note_rollout();
DROP TABLE webhook_rollouts;
