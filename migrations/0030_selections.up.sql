-- Machines that were chosen once, and do not change when the fleet does.
CREATE TABLE selections (
    selection_id text PRIMARY KEY,
    request_id   text        NOT NULL UNIQUE,
    filter       text        NOT NULL,
    machine_ids  text[]      NOT NULL,
    digest       text        NOT NULL,
    created_by   text        NOT NULL,
    created_at   timestamptz NOT NULL,
    expires_at   timestamptz NOT NULL
);
CREATE INDEX selections_expiry ON selections (expires_at);

-- Operations that a machine of a rollout still needs after the one under way.
ALTER TABLE rollout_machines ADD COLUMN stages_left integer NOT NULL DEFAULT 0;

-- The next operation is due when one has succeeded. A trigger says so, so that an older version of the controller, which
-- knows of one operation per machine, does not end the machine when somebody pauses the rollout there.
CREATE FUNCTION rollout_next_stage() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.state := 'STARTING';
    NEW.stages_left := OLD.stages_left - 1;
    NEW.finished_at := NULL;
    RETURN NEW;
END $$;
CREATE TRIGGER rollout_machines_next BEFORE UPDATE ON rollout_machines FOR EACH ROW
    WHEN (OLD.state = 'RUNNING' AND NEW.state = 'SUCCEEDED' AND OLD.stages_left > 0)
    EXECUTE FUNCTION rollout_next_stage();

-- When a rollout of several operations per machine is to be looked at again. Older versions look at wake_at alone, and so
-- never start a machine of it: they would skip it, since they know no such work.
ALTER TABLE rollouts ADD COLUMN staged_wake_at timestamptz;
CREATE INDEX rollouts_staged_due ON rollouts (staged_wake_at) WHERE staged_wake_at IS NOT NULL;

CREATE FUNCTION rollout_staged_wake() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.staged_wake_at := NEW.wake_at;
    NEW.wake_at := NULL;
    RETURN NEW;
END $$;
CREATE TRIGGER rollouts_staged_insert BEFORE INSERT ON rollouts FOR EACH ROW
    WHEN (NEW.type = 'PROVISION') EXECUTE FUNCTION rollout_staged_wake();
CREATE TRIGGER rollouts_staged_update BEFORE UPDATE OF wake_at ON rollouts FOR EACH ROW
    WHEN (NEW.type = 'PROVISION') EXECUTE FUNCTION rollout_staged_wake();
