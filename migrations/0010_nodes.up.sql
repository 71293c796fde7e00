-- Every change of a node's state is one line of its log. The trigger on the state writes it, so that no statement can
-- change the state without a line, and no line is of a change that did not happen. What is inserted into the log itself is
-- kept for the next change of that node in the same transaction, and becomes its line: by whom, why, and on whose behalf.

CREATE FUNCTION tell_node_move() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    kept text;
BEGIN
    IF pg_trigger_depth() > 1 THEN
        RETURN NEW;
    END IF;
    kept := set_config('ingot.node_move', json_build_object('machine_id', NEW.machine_id, 'from', NEW.from_state, 'to', NEW.to_state,
        'by', NEW.triggered_by, 'user', NEW.user_id, 'audit_id', NEW.audit_id, 'metadata', NEW.metadata)::text, true);
    RETURN NULL;
END $$;
CREATE TRIGGER node_state_log_told BEFORE INSERT ON node_state_log FOR EACH ROW EXECUTE FUNCTION tell_node_move();

CREATE FUNCTION log_node_move() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    told json;
    kept text;
BEGIN
    IF NEW.node_state = OLD.node_state THEN
        RETURN NULL;
    END IF;
    told := nullif(current_setting('ingot.node_move', true), '')::json;
    IF told IS NULL OR told ->> 'machine_id' <> NEW.machine_id OR told ->> 'from' <> OLD.node_state OR told ->> 'to' <> NEW.node_state THEN
        told := '{}'; -- nobody has said anything about this change
    END IF;
    kept := set_config('ingot.node_move', '', true);
    INSERT INTO node_state_log (machine_id, from_state, to_state, triggered_by, user_id, audit_id, metadata, created_at)
    VALUES (NEW.machine_id, OLD.node_state, NEW.node_state, coalesce(told ->> 'by', 'system'), coalesce(told ->> 'user', ''),
            (told ->> 'audit_id')::bigint, coalesce((told ->> 'metadata')::jsonb, '{}'), NEW.node_state_changed_at);
    RETURN NULL;
END $$;
CREATE TRIGGER machines_node_move AFTER UPDATE OF node_state ON machines FOR EACH ROW EXECUTE FUNCTION log_node_move();

-- Lines never change and never go.
CREATE FUNCTION keep_node_log() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'lines of % never change', TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
END $$;
CREATE TRIGGER node_state_log_keep BEFORE UPDATE OR DELETE ON node_state_log FOR EACH ROW EXECUTE FUNCTION keep_node_log();

-- A machine that is to be retired as soon as the operation on it, which is being cancelled, has ended: who asked, under
-- which request, and where their words are.
ALTER TABLE machines ADD COLUMN retiring jsonb;

-- Nodes in a state that stands for work. There are few, and each must have an owner.
CREATE INDEX machines_in_work ON machines (machine_id)
WHERE node_state IN ('enrolling', 'installing', 'reprovision', 'deprovisioning', 'migrating', 'draining', 'removing');

-- Nodes in a state that conditions follow.
CREATE INDEX machines_out_of_service ON machines (machine_id) WHERE node_state IN ('quarantined', 'retired', 'removing');
