DROP TRIGGER rollouts_staged_update ON rollouts;
DROP TRIGGER rollouts_staged_insert ON rollouts;
DROP FUNCTION rollout_staged_wake();
ALTER TABLE rollouts DROP COLUMN staged_wake_at;
DROP TRIGGER rollout_machines_next ON rollout_machines;
DROP FUNCTION rollout_next_stage();
ALTER TABLE rollout_machines DROP COLUMN stages_left;
DROP TABLE selections;
