-- Histories go on row by row. What entries of kind 'changes' say stays in the chain, and older controllers cannot read it:
-- they find the tables different from it.
DROP TRIGGER workflows_timeline ON workflows;
DROP TRIGGER workflows_timeline_commit ON workflows;
DROP TRIGGER audit_log_timeline_commit ON audit_log;
DROP TRIGGER node_state_log_timeline_commit ON node_state_log;
DROP TRIGGER commands_timeline_commit ON commands;
DROP TRIGGER operation_steps_timeline_commit ON operation_steps;
DROP TRIGGER operations_timeline_commit ON operations;
DROP TRIGGER machine_conditions_timeline_commit ON machine_conditions;
DROP TRIGGER machines_timeline_commit ON machines;
DROP TRIGGER machines_timeline ON machines;
CREATE TRIGGER machines_timeline AFTER INSERT OR UPDATE ON machines FOR EACH ROW EXECUTE FUNCTION timeline_of_machine();
DROP FUNCTION timeline_of_workflow, timeline_workflow_change, timeline_commit, timeline_write, timeline_note, timeline_enter, timeline_lane;

CREATE FUNCTION timeline_append(machine text, kind text, actor text, operation text, command text, fields text)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    this_tx bigint := pg_current_xact_id()::text::bigint;
    head_tx bigint;
    at      timestamptz;
    n       bigint;
    prev    bytea;
    digest  bytea;
    entry   json;
BEGIN
    SELECT t.seq, t.ts, t.tx, t.hash INTO n, at, head_tx, prev
    FROM machine_timeline t WHERE t.machine_id = machine ORDER BY t.seq DESC LIMIT 1;
    IF head_tx IS DISTINCT FROM this_tx THEN
        -- The first entry of this transaction. The lock is held already wherever the machine's row is locked first.
        IF machine = '' THEN
            PERFORM pg_advisory_xact_lock(7164228305);
        ELSE
            PERFORM 1 FROM machines m WHERE m.machine_id = machine FOR NO KEY UPDATE;
        END IF;
        SELECT t.seq, t.ts, t.hash INTO n, at, prev
        FROM machine_timeline t WHERE t.machine_id = machine ORDER BY t.seq DESC LIMIT 1;
        at := greatest(at, clock_timestamp());
    END IF;
    n := coalesce(n, 0) + 1;
    prev := coalesce(prev, '');
    -- Not in the statement below: expressions of statements are prepared anew each time.
    digest := sha256(prev || convert_to(
        octet_length(machine) || ':' || machine || n || ',' || (extract(epoch FROM at) * 1000000)::bigint || ',' || this_tx || ','
        || octet_length(kind) || ':' || kind || octet_length(actor) || ':' || actor
        || octet_length(operation) || ':' || operation || octet_length(command) || ':' || command || fields, 'UTF8'));
    entry := fields;
    INSERT INTO machine_timeline VALUES (machine, n, at, this_tx, kind, actor, operation, command, entry, prev, digest);
END $$;

CREATE OR REPLACE FUNCTION timeline_of_machine() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    fields jsonb := '{}';
BEGIN
    -- An update says what has changed; what is gone is empty.
    IF TG_OP = 'INSERT' OR NEW.phase <> OLD.phase THEN
        fields := fields || jsonb_build_object('phase', NEW.phase);
    END IF;
    IF TG_OP = 'INSERT' OR NEW.node_state <> OLD.node_state THEN
        fields := fields || jsonb_build_object('node_state', NEW.node_state);
    END IF;
    IF TG_OP = 'INSERT' OR NEW.boot_mode <> OLD.boot_mode THEN
        fields := fields || jsonb_build_object('boot_mode', NEW.boot_mode);
    END IF;
    IF NEW.install_attempts <> coalesce(OLD.install_attempts, 0) THEN
        fields := fields || jsonb_build_object('install_attempts', NEW.install_attempts::text);
    END IF;
    -- Spec and labels are the client's words: only that they changed is kept.
    IF TG_OP = 'INSERT' OR NEW.spec <> OLD.spec OR NEW.labels <> OLD.labels THEN
        fields := fields || jsonb_build_object('spec', encode(sha256(convert_to(NEW.spec::text || NEW.labels::text, 'UTF8')), 'hex'));
    END IF;
    IF TG_OP = 'UPDATE' THEN
        IF NEW.current_operation_id IS DISTINCT FROM OLD.current_operation_id THEN
            fields := fields || jsonb_build_object('current_operation_id', coalesce(NEW.current_operation_id, ''));
        END IF;
        IF NEW.unresolved_command_id IS DISTINCT FROM OLD.unresolved_command_id THEN
            fields := fields || jsonb_build_object('unresolved_command_id', coalesce(NEW.unresolved_command_id, ''));
        END IF;
        IF NEW.agent_id IS DISTINCT FROM OLD.agent_id THEN
            fields := fields || jsonb_build_object('agent_id', coalesce(NEW.agent_id, ''));
        END IF;
        IF NEW.boot_id <> OLD.boot_id THEN
            fields := fields || jsonb_build_object('boot_id', NEW.boot_id);
        END IF;
        IF NEW.os_image_digest <> OLD.os_image_digest THEN
            fields := fields || jsonb_build_object('os_image_digest', NEW.os_image_digest);
        END IF;
        IF NEW.plan_id IS DISTINCT FROM OLD.plan_id THEN
            fields := fields || jsonb_build_object('plan_id', coalesce(NEW.plan_id, ''));
        END IF;
        IF NEW.power_state <> OLD.power_state THEN
            fields := fields || jsonb_build_object('power_state', NEW.power_state);
        END IF;
        IF (NEW.deleted_at IS NULL) <> (OLD.deleted_at IS NULL) THEN
            fields := fields || jsonb_build_object('deleted', CASE WHEN NEW.deleted_at IS NULL THEN '' ELSE 'true' END);
        END IF;
    END IF;
    IF fields <> '{}' THEN
        PERFORM timeline_append(NEW.machine_id, 'machine', '', '', '', fields::text);
    END IF;
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION timeline_of_condition() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        PERFORM timeline_append(OLD.machine_id, 'condition', '', '', '', jsonb_build_object('type', OLD.type, 'status', '')::text);
    ELSIF TG_OP = 'INSERT' OR NEW.status <> OLD.status OR NEW.reason <> OLD.reason OR NEW.message <> OLD.message THEN
        PERFORM timeline_append(NEW.machine_id, 'condition', '', '', '', jsonb_build_object(
            'type', NEW.type, 'status', NEW.status::text, 'reason', NEW.reason, 'message', NEW.message)::text);
    END IF;
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION timeline_of_operation() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' THEN
        IF NEW.phase = OLD.phase AND NEW.current_stage = OLD.current_stage AND NEW.wait_reason = OLD.wait_reason
            AND NEW.error IS NOT DISTINCT FROM OLD.error AND NEW.evidence = OLD.evidence
            AND (NEW.cancel_requested_at IS NULL) = (OLD.cancel_requested_at IS NULL) THEN
            RETURN NULL;
        END IF;
    END IF;
    PERFORM timeline_append(NEW.target_id, 'operation', '', NEW.operation_id, '', jsonb_strip_nulls(jsonb_build_object(
        'type', NEW.type, 'phase', NEW.phase, 'stage', nullif(NEW.current_stage, ''), 'wait_reason', nullif(NEW.wait_reason, ''),
        'cancel_requested', CASE WHEN NEW.cancel_requested_at IS NOT NULL THEN 'true' END, 'error', NEW.error::text,
        'evidence', nullif(NEW.evidence::text, '{}')))::text);
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION timeline_of_step() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.state = OLD.state AND NEW.retry_count = OLD.retry_count AND NEW.evidence = OLD.evidence THEN
        RETURN NULL;
    END IF;
    PERFORM timeline_append((SELECT o.target_id FROM operations o WHERE o.operation_id = NEW.operation_id), 'step', '',
        NEW.operation_id, '', jsonb_strip_nulls(jsonb_build_object(
            'step', NEW.name, 'state', NEW.state, 'retries', nullif(NEW.retry_count, 0)::text,
            'evidence', nullif(NEW.evidence::text, '{}')))::text);
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION timeline_of_command() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' THEN
        IF NEW.state = OLD.state AND NEW.outcome = OLD.outcome AND NEW.reason = OLD.reason AND NEW.evidence = OLD.evidence
            AND NEW.settled_by = OLD.settled_by AND (NEW.claimed_at IS NULL) = (OLD.claimed_at IS NULL) THEN
            RETURN NULL;
        END IF;
    END IF;
    -- What an executor has acknowledged, asked for or reported is its own doing.
    PERFORM timeline_append(NEW.target_id, 'command',
        CASE WHEN NEW.state IN ('ACKED', 'GRANTED', 'DONE') THEN NEW.executor_id ELSE '' END,
        NEW.operation_id, NEW.command_id, jsonb_strip_nulls(jsonb_build_object(
            'kind', NEW.kind, 'step', NEW.step_name, 'attempt', NEW.attempt::text, 'executor_id', NEW.executor_id,
            'state', NEW.state, 'claimed', CASE WHEN NEW.claimed_at IS NOT NULL THEN 'true' END,
            'outcome', nullif(NEW.outcome, ''), 'reason', nullif(NEW.reason, ''), 'evidence', nullif(NEW.evidence::text, '{}'),
            'settled_by', nullif(NEW.settled_by, '')))::text);
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION timeline_of_node_state() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM timeline_append(NEW.machine_id, 'node_state', NEW.user_id, '', '', jsonb_build_object(
        'from', NEW.from_state, 'to', NEW.to_state, 'by', NEW.triggered_by, 'log_id', NEW.id::text)::text);
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION timeline_of_audit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM timeline_append(coalesce((SELECT m.machine_id FROM machines m WHERE m.machine_id = NEW.target_id), ''), 'audit',
        NEW.actor, NEW.operation_id, '', jsonb_strip_nulls(jsonb_build_object(
            'audit_id', NEW.audit_id::text, 'verb', NEW.verb, 'target', NEW.target_id, 'request_id', nullif(NEW.request_id, ''),
            'at', ((extract(epoch FROM NEW.ts) * 1000000)::bigint)::text,
            'data_digest', encode(sha256(NEW.salt || convert_to(NEW.event_data::text, 'UTF8')), 'hex')))::text);
    RETURN NULL;
END $$;
