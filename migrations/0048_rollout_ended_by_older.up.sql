-- A controller of before 0047 ends every rollout as SUCCEEDED. Its failures are not lost while both kinds run.
CREATE FUNCTION rollout_end_state() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM rollout_machines m
               WHERE m.rollout_id = NEW.rollout_id AND m.state IN ('FAILED', 'CANCELED')) THEN
        NEW.state := 'COMPLETED_WITH_FAILURES';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER rollouts_end_state BEFORE UPDATE ON rollouts FOR EACH ROW
    WHEN (NEW.state = 'SUCCEEDED' AND OLD.state <> 'SUCCEEDED') EXECUTE FUNCTION rollout_end_state();
