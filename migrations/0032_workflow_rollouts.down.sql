CREATE OR REPLACE TRIGGER rollouts_staged_insert BEFORE INSERT ON rollouts FOR EACH ROW
    WHEN (NEW.type = 'PROVISION') EXECUTE FUNCTION rollout_staged_wake();
CREATE OR REPLACE TRIGGER rollouts_staged_update BEFORE UPDATE OF wake_at ON rollouts FOR EACH ROW
    WHEN (NEW.type = 'PROVISION') EXECUTE FUNCTION rollout_staged_wake();
