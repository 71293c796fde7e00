-- A rollout that has ended with failures, or with canceled machines, has a state of its own.
ALTER TABLE rollouts DROP CONSTRAINT rollouts_state_check;
ALTER TABLE rollouts ADD CONSTRAINT rollouts_state_check CHECK (state IN ('AWAITING_APPROVAL', 'RUNNING', 'PAUSED', 'STOPPING',
    'SUCCEEDED', 'COMPLETED_WITH_FAILURES', 'FAILED', 'CANCELED'));

CREATE OR REPLACE FUNCTION webhook_note_rollout() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM webhooks WHERE state = 'active') THEN
        RETURN NULL;
    END IF;
    IF TG_OP = 'INSERT' THEN
        INSERT INTO webhook_rollouts (rollout_id, kind, to_value) VALUES (NEW.rollout_id, 'created', NEW.state);
        IF NEW.state = 'RUNNING' THEN
            INSERT INTO webhook_rollouts (rollout_id, kind, to_value) VALUES (NEW.rollout_id, 'started', NEW.state);
        END IF;
        RETURN NULL;
    END IF;
    -- A wave has ended when the rest after it begins; without one, when the next wave or the end does.
    IF OLD.wave > 0 AND OLD.soak_until IS NULL AND (NEW.soak_until IS NOT NULL OR NEW.wave > OLD.wave
        OR OLD.state IN ('RUNNING', 'PAUSED') AND NEW.state IN ('SUCCEEDED', 'COMPLETED_WITH_FAILURES', 'FAILED')) THEN
        INSERT INTO webhook_rollouts (rollout_id, kind, from_value, to_value)
        VALUES (NEW.rollout_id, 'wave_ended', OLD.wave::text, OLD.waves::text);
    END IF;
    IF OLD.cause <> 'GATE' AND NEW.cause = 'GATE' THEN
        INSERT INTO webhook_rollouts (rollout_id, kind, from_value, to_value) VALUES (NEW.rollout_id, 'gate_closed', OLD.state, NEW.state);
    END IF;
    IF OLD.state <> NEW.state AND NEW.state <> 'STOPPING' THEN
        INSERT INTO webhook_rollouts (rollout_id, kind, from_value, to_value)
        VALUES (NEW.rollout_id, CASE WHEN NEW.state <> 'RUNNING' THEN lower(NEW.state) WHEN OLD.state = 'PAUSED' THEN 'resumed' ELSE 'started' END,
                OLD.state, NEW.state);
    END IF;
    RETURN NULL;
END $$;

-- Rollouts of the past are corrected without an event: nothing happens to them now.
ALTER TABLE rollouts DISABLE TRIGGER rollouts_moved;
UPDATE rollouts r SET state = 'COMPLETED_WITH_FAILURES', version = version + 1
WHERE state = 'SUCCEEDED' AND EXISTS (SELECT 1 FROM rollout_machines m
    WHERE m.rollout_id = r.rollout_id AND m.state IN ('FAILED', 'CANCELED'));
ALTER TABLE rollouts ENABLE TRIGGER rollouts_moved;
