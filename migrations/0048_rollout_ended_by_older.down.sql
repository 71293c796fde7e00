DROP TRIGGER rollouts_end_state ON rollouts;
DROP FUNCTION rollout_end_state();
