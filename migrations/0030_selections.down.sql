DROP TRIGGER rollout_machines_next ON rollout_machines;
DROP FUNCTION rollout_next_stage();
ALTER TABLE rollout_machines DROP COLUMN stages_left;
DROP TABLE selections;
