-- What happens to rollouts, for webhooks. Triggers note it, so that what an older version of the controller does is told as well.
-- A row goes when its deliveries are there.
CREATE TABLE webhook_rollouts (
    change_id  bigserial PRIMARY KEY,
    rollout_id text        NOT NULL,
    kind       text        NOT NULL,
    from_value text        NOT NULL DEFAULT '',
    to_value   text        NOT NULL DEFAULT '',
    ts         timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE FUNCTION webhook_note_rollout() RETURNS trigger LANGUAGE plpgsql AS $$
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
        OR OLD.state IN ('RUNNING', 'PAUSED') AND NEW.state IN ('SUCCEEDED', 'FAILED')) THEN
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
CREATE TRIGGER rollouts_begun AFTER INSERT ON rollouts FOR EACH ROW EXECUTE FUNCTION webhook_note_rollout();
CREATE TRIGGER rollouts_moved AFTER UPDATE ON rollouts FOR EACH ROW
    WHEN (OLD.state <> NEW.state OR OLD.wave <> NEW.wave OR OLD.cause <> NEW.cause OR OLD.soak_until IS DISTINCT FROM NEW.soak_until)
    EXECUTE FUNCTION webhook_note_rollout();

-- What operators see of controllers.
ALTER TABLE controllers ADD COLUMN hostname text NOT NULL DEFAULT '';
ALTER TABLE controllers ADD COLUMN draining_since timestamptz;
