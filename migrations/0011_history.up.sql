-- The history of a machine becomes cheaper and says more. What one transaction changes about one machine is one entry, of kind
-- 'changes', instead of one for each row: triggers note the changes, and a deferred trigger writes the entry when the
-- transaction commits. Workflows are in it, and what a stage's check has said. Older entries stay as they are, and the chain
-- goes on from them.
--
-- What is noted stands in the setting ingot.timeline, which ends with the transaction and which a savepoint rolls back. Each
-- change is: the control character 30, the machine, 31, and [kind, actor, operation, command, {fields}] as JSON. No machine's
-- name and no JSON text has control characters.
--
-- The functions have few expressions on purpose: each is prepared anew in every transaction, which is what they cost most.
--
-- A migration that changes rows of these tables and alters them afterwards needs SET CONSTRAINTS ALL IMMEDIATE between the two.

-- A lock for each history would be too many for a transaction that changes every machine.
CREATE FUNCTION timeline_lane(machine text) RETURNS integer LANGUAGE sql IMMUTABLE AS $$
    SELECT hashtext(machine) & 1023
$$;

-- timeline_enter adds one entry to a history. Histories are locked last of all in a transaction, those of several machines in
-- the order of their lanes, so that nobody who waits for one holds up another. changes is a JSON array.
CREATE FUNCTION timeline_enter(machine text, changes text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    -- The statement below sees what was committed until the lock was there.
    IF pg_advisory_xact_lock(716422830, hashtext(machine) & 1023) IS NULL THEN
        RETURN NULL;
    END IF;
    INSERT INTO machine_timeline (machine_id, seq, ts, tx, kind, actor, operation_id, command_id, fields, prev_hash, hash)
    SELECT machine, h.seq, h.ts, h.tx, 'changes', '', '', '', changes::json, h.prev, sha256(h.prev || convert_to(concat(
        octet_length(machine), ':', machine, h.seq, ',', (extract(epoch FROM h.ts) * 1000000)::bigint, ',', h.tx,
        ',7:changes0:0:0:', changes), 'UTF8'))
    FROM (SELECT coalesce(last.seq, 0) + 1 AS seq, this.tx, coalesce(last.hash, '') AS prev,
                 CASE WHEN last.tx = this.tx THEN last.ts ELSE greatest(last.ts, clock_timestamp()) END AS ts
          FROM (SELECT pg_current_xact_id()::text::bigint AS tx) this
          LEFT JOIN (SELECT t.seq, t.ts, t.tx, t.hash FROM machine_timeline t
                     WHERE t.machine_id = machine ORDER BY t.seq DESC LIMIT 1) last ON true) h;
    RETURN '';
END $$;

-- timeline_write writes the entries of what was noted.
CREATE FUNCTION timeline_write() RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    noted   text := current_setting('ingot.timeline', true);
    machine text := substr(split_part(noted, E'\x1f', 1), 2);
    changes text := replace(noted, concat(E'\x1e', machine, E'\x1f'), ', ');
    e       record;
BEGIN
    IF set_config('ingot.timeline', '', true) = '' AND strpos(changes, E'\x1e') = 0 THEN
        RETURN timeline_enter(machine, concat('[', substr(changes, 3), ']'));
    END IF;
    FOR e IN
        SELECT split_part(c.change, E'\x1f', 1) AS machine, string_agg(split_part(c.change, E'\x1f', 2), ', ' ORDER BY c.n) AS changes
        FROM string_to_table(substr(noted, 2), E'\x1e') WITH ORDINALITY c(change, n)
        GROUP BY 1 ORDER BY timeline_lane(split_part(c.change, E'\x1f', 1)), 1
    LOOP
        machine := timeline_enter(e.machine, concat('[', e.changes, ']'));
    END LOOP;
    RETURN '';
END $$;

-- timeline_note is for what happens seldom; the triggers that a reboot fires do the same in place. Work on very much is written
-- in parts: texts that grow by copying would take ever longer.
CREATE FUNCTION timeline_note(machine text, change json) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    IF octet_length(set_config('ingot.timeline', concat(current_setting('ingot.timeline', true), E'\x1e', machine, E'\x1f', change), true)) > 65536 THEN
        RETURN timeline_write();
    END IF;
    RETURN '';
END $$;

CREATE FUNCTION timeline_commit() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    done text;
BEGIN
    IF current_setting('ingot.timeline', true) <> '' THEN
        done := timeline_write();
    END IF;
    RETURN NULL;
END $$;

-- What follows notes what changes. Fields are strings; what is empty is left out, and so is what people typed.

-- An update says what has changed; what is gone is empty. Spec and labels are the client's words: only that they changed is kept.
CREATE OR REPLACE FUNCTION timeline_of_machine() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    fields text;
    done   text;
BEGIN
    fields := json_strip_nulls(json_build_object(
        'phase', CASE WHEN NEW.phase IS DISTINCT FROM OLD.phase THEN NEW.phase END,
        'node_state', CASE WHEN NEW.node_state IS DISTINCT FROM OLD.node_state THEN NEW.node_state END,
        'boot_mode', CASE WHEN NEW.boot_mode IS DISTINCT FROM OLD.boot_mode THEN NEW.boot_mode END,
        'install_attempts', CASE WHEN NEW.install_attempts <> coalesce(OLD.install_attempts, 0) THEN NEW.install_attempts::text END,
        'spec', CASE WHEN NEW.spec IS DISTINCT FROM OLD.spec OR NEW.labels IS DISTINCT FROM OLD.labels
                THEN encode(sha256(convert_to(NEW.spec::text || NEW.labels::text, 'UTF8')), 'hex') END,
        'current_operation_id', CASE WHEN NEW.current_operation_id IS DISTINCT FROM OLD.current_operation_id
                                THEN coalesce(NEW.current_operation_id, '') END,
        'unresolved_command_id', CASE WHEN NEW.unresolved_command_id IS DISTINCT FROM OLD.unresolved_command_id
                                 THEN coalesce(NEW.unresolved_command_id, '') END,
        'agent_id', CASE WHEN NEW.agent_id IS DISTINCT FROM OLD.agent_id THEN coalesce(NEW.agent_id, '') END,
        'boot_id', CASE WHEN NEW.boot_id <> coalesce(OLD.boot_id, '') THEN NEW.boot_id END,
        'os_image_digest', CASE WHEN NEW.os_image_digest <> coalesce(OLD.os_image_digest, '') THEN NEW.os_image_digest END,
        'plan_id', CASE WHEN NEW.plan_id IS DISTINCT FROM OLD.plan_id THEN coalesce(NEW.plan_id, '') END,
        'power_state', CASE WHEN NEW.power_state <> coalesce(OLD.power_state, '') THEN NEW.power_state END,
        'deleted', CASE WHEN NEW.deleted_at IS NOT NULL AND OLD.deleted_at IS NULL THEN 'true'
                        WHEN NEW.deleted_at IS NULL AND OLD.deleted_at IS NOT NULL THEN '' END));
    IF fields <> '{}' AND octet_length(set_config('ingot.timeline', concat(current_setting('ingot.timeline', true),
        E'\x1e', NEW.machine_id, E'\x1f["machine", "", "", "", ', fields, ']'), true)) > 65536 THEN
        done := timeline_write();
    END IF;
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION timeline_of_condition() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    done text;
BEGIN
    IF TG_OP = 'DELETE' THEN
        done := timeline_note(OLD.machine_id, json_build_array('condition', '', '', '', json_build_object('type', OLD.type, 'status', '')));
    ELSIF TG_OP = 'INSERT' OR NEW.status <> OLD.status OR NEW.reason <> OLD.reason OR NEW.message <> OLD.message THEN
        done := timeline_note(NEW.machine_id, json_build_array('condition', '', '', '', json_build_object(
            'type', NEW.type, 'status', NEW.status::text, 'reason', NEW.reason, 'message', NEW.message)));
    END IF;
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION timeline_of_operation() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    done text;
BEGIN
    IF (TG_OP = 'INSERT' OR NEW.phase <> OLD.phase OR NEW.current_stage <> OLD.current_stage OR NEW.wait_reason <> OLD.wait_reason
            OR NEW.error IS DISTINCT FROM OLD.error OR NEW.evidence <> OLD.evidence
            OR (NEW.cancel_requested_at IS NULL) <> (OLD.cancel_requested_at IS NULL))
        AND octet_length(set_config('ingot.timeline', concat(current_setting('ingot.timeline', true), E'\x1e', NEW.target_id, E'\x1f',
            json_build_array('operation', '', NEW.operation_id, '', json_strip_nulls(json_build_object(
                'type', NEW.type, 'phase', NEW.phase, 'stage', nullif(NEW.current_stage, ''), 'wait_reason', nullif(NEW.wait_reason, ''),
                'cancel_requested', CASE WHEN NEW.cancel_requested_at IS NOT NULL THEN 'true' END, 'error', NEW.error::text,
                'evidence', nullif(NEW.evidence::text, '{}'))))), true)) > 65536 THEN
        done := timeline_write();
    END IF;
    RETURN NULL;
END $$;

-- A step that has not begun is not worth an entry: the plan is known.
CREATE OR REPLACE FUNCTION timeline_of_step() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    machine text;
    done    text;
BEGIN
    IF NEW.state = OLD.state AND NEW.retry_count = OLD.retry_count AND NEW.evidence = OLD.evidence AND NEW.message = OLD.message THEN
        RETURN NULL;
    END IF;
    SELECT o.target_id INTO machine FROM operations o WHERE o.operation_id = NEW.operation_id;
    IF octet_length(set_config('ingot.timeline', concat(current_setting('ingot.timeline', true), E'\x1e', machine, E'\x1f',
        json_build_array('step', '', NEW.operation_id, '', json_strip_nulls(json_build_object(
            'step', NEW.name, 'state', NEW.state, 'retries', nullif(NEW.retry_count, 0)::text,
            'message', nullif(NEW.message, ''), 'evidence', nullif(NEW.evidence::text, '{}'))))), true)) > 65536 THEN
        done := timeline_write();
    END IF;
    RETURN NULL;
END $$;

-- What an executor has acknowledged, asked for or reported is its own doing.
CREATE OR REPLACE FUNCTION timeline_of_command() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    done text;
BEGIN
    IF (TG_OP = 'INSERT' OR NEW.state <> OLD.state OR NEW.outcome <> OLD.outcome OR NEW.reason <> OLD.reason OR NEW.evidence <> OLD.evidence
            OR NEW.settled_by <> OLD.settled_by OR (NEW.claimed_at IS NULL) <> (OLD.claimed_at IS NULL))
        AND octet_length(set_config('ingot.timeline', concat(current_setting('ingot.timeline', true), E'\x1e', NEW.target_id, E'\x1f',
            json_build_array('command', CASE WHEN NEW.state IN ('ACKED', 'GRANTED', 'DONE') THEN NEW.executor_id ELSE '' END,
                NEW.operation_id, NEW.command_id, json_strip_nulls(json_build_object(
                    'kind', NEW.kind, 'step', NEW.step_name, 'attempt', NEW.attempt::text, 'executor_id', NEW.executor_id,
                    'state', NEW.state, 'claimed', CASE WHEN NEW.claimed_at IS NOT NULL THEN 'true' END,
                    'outcome', nullif(NEW.outcome, ''), 'reason', nullif(NEW.reason, ''), 'evidence', nullif(NEW.evidence::text, '{}'),
                    'settled_by', nullif(NEW.settled_by, ''))))), true)) > 65536 THEN
        done := timeline_write();
    END IF;
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION timeline_of_node_state() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    done text;
BEGIN
    done := timeline_note(NEW.machine_id, json_build_array('node_state', NEW.user_id, '', '', json_build_object(
        'from', NEW.from_state, 'to', NEW.to_state, 'by', NEW.triggered_by, 'log_id', NEW.id::text)));
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION timeline_of_audit() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    machine text := NEW.target_id;
    done    text;
BEGIN
    -- A machine of which something has been noted is one.
    IF coalesce(strpos(current_setting('ingot.timeline', true), concat(E'\x1e', machine, E'\x1f')), 0) = 0 THEN
        SELECT m.machine_id INTO machine FROM machines m WHERE m.machine_id = NEW.target_id;
    END IF;
    done := timeline_note(machine, json_build_array('audit', NEW.actor, NEW.operation_id, '', json_strip_nulls(json_build_object(
        'audit_id', NEW.audit_id::text, 'verb', NEW.verb, 'target', NEW.target_id, 'request_id', nullif(NEW.request_id, ''),
        'at', ((extract(epoch FROM NEW.ts) * 1000000)::bigint)::text,
        'data_digest', encode(sha256(NEW.salt || convert_to(NEW.event_data::text, 'UTF8')), 'hex')))));
    RETURN NULL;
END $$;

-- Params are the client's words and left out.
CREATE FUNCTION timeline_workflow_change(w workflows) RETURNS json LANGUAGE sql STABLE AS $$
    SELECT json_build_array('workflow', '', coalesce(w.operation_id, ''), '', json_strip_nulls(json_build_object(
        'workflow_id', w.workflow_id, 'kind', w.kind, 'mode', nullif(w.mode, ''), 'state', w.state, 'stage', w.stage,
        'plan', array_to_string(w.plan, ','), 'attempt', w.attempt_count::text, 'repeats', nullif(w.repeats, 0)::text,
        'failure_class', nullif(w.failure_class, ''), 'reason', nullif(w.reason, ''), 'message', nullif(w.message, ''),
        'observed', nullif(w.observed_provider_state, ''), 'action', nullif(w.last_action, ''),
        'adopted', CASE WHEN w.adopted THEN 'true' END, 'evidence', nullif(w.evidence::text, '{}'),
        'ended', CASE WHEN w.ended_at IS NOT NULL THEN 'true' END)))
$$;

CREATE FUNCTION timeline_of_workflow() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    change json := timeline_workflow_change(NEW);
    done   text;
BEGIN
    IF TG_OP = 'UPDATE' THEN
        IF timeline_workflow_change(OLD)::text = change::text THEN
            RETURN NULL;
        END IF;
    END IF;
    done := timeline_note(NEW.machine_id, change);
    RETURN NULL;
END $$;
-- Rows of machines are stamped more often than they change.
DROP TRIGGER machines_timeline ON machines;
CREATE TRIGGER machines_timeline AFTER INSERT OR UPDATE OF phase, node_state, boot_mode, install_attempts, spec, labels,
    current_operation_id, unresolved_command_id, agent_id, boot_id, os_image_digest, plan_id, power_state, deleted_at ON machines
    FOR EACH ROW EXECUTE FUNCTION timeline_of_machine();
CREATE TRIGGER workflows_timeline AFTER INSERT OR UPDATE ON workflows FOR EACH ROW EXECUTE FUNCTION timeline_of_workflow();

CREATE CONSTRAINT TRIGGER machines_timeline_commit AFTER INSERT OR UPDATE OF phase, node_state, boot_mode, install_attempts, spec, labels,
    current_operation_id, unresolved_command_id, agent_id, boot_id, os_image_digest, plan_id, power_state, deleted_at ON machines
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION timeline_commit();
CREATE CONSTRAINT TRIGGER machine_conditions_timeline_commit AFTER INSERT OR UPDATE OR DELETE ON machine_conditions
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION timeline_commit();
CREATE CONSTRAINT TRIGGER operations_timeline_commit AFTER INSERT OR UPDATE ON operations
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION timeline_commit();
CREATE CONSTRAINT TRIGGER operation_steps_timeline_commit AFTER UPDATE ON operation_steps
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION timeline_commit();
CREATE CONSTRAINT TRIGGER commands_timeline_commit AFTER INSERT OR UPDATE ON commands
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION timeline_commit();
CREATE CONSTRAINT TRIGGER node_state_log_timeline_commit AFTER INSERT ON node_state_log
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION timeline_commit();
CREATE CONSTRAINT TRIGGER audit_log_timeline_commit AFTER INSERT ON audit_log
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION timeline_commit();
CREATE CONSTRAINT TRIGGER workflows_timeline_commit AFTER INSERT OR UPDATE ON workflows
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION timeline_commit();

DROP FUNCTION timeline_append;

-- Machines that are there already: how many moves of their nodes were made up to now, and what their workflows are.
SET LOCAL statement_timeout = 0;

SELECT timeline_enter(m.machine_id, concat('[', json_build_array('machine', '', '', '', json_build_object(
        'moves_before', (SELECT count(*)::text FROM node_state_log l WHERE l.machine_id = m.machine_id),
        'last_move', (SELECT coalesce(max(l.id), 0)::text FROM node_state_log l WHERE l.machine_id = m.machine_id))),
    (SELECT string_agg(', ' || timeline_workflow_change(w), '' ORDER BY w.created_at, w.workflow_id)
     FROM workflows w WHERE w.machine_id = m.machine_id), ']'))
FROM (SELECT machine_id FROM machines ORDER BY timeline_lane(machine_id), machine_id) m;
