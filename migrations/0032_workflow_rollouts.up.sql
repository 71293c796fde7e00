-- Rollouts that start workflows are looked at by versions that know them, as those of several operations are.
CREATE OR REPLACE TRIGGER rollouts_staged_insert BEFORE INSERT ON rollouts FOR EACH ROW
    WHEN (NEW.type IN ('PROVISION', 'ONBOARD', 'DECOMMISSION')) EXECUTE FUNCTION rollout_staged_wake();
CREATE OR REPLACE TRIGGER rollouts_staged_update BEFORE UPDATE OF wake_at ON rollouts FOR EACH ROW
    WHEN (NEW.type IN ('PROVISION', 'ONBOARD', 'DECOMMISSION')) EXECUTE FUNCTION rollout_staged_wake();
