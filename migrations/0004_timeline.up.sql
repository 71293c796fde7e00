-- One history per machine, as a chain of hashes: every change of what the machine, its conditions, its operations, steps and
-- commands are, and every audit row about it, becomes an entry in the transaction that makes the change. Triggers write
-- them, so that no code can forget to. What is about no machine is the fleet's chain, whose machine_id is empty.

CREATE TABLE machine_timeline (
    machine_id   text        NOT NULL,
    -- 1, 2, 3, … under the machine's row lock: no gaps, no forks.
    seq          bigint      NOT NULL,
    -- The database's clock; all entries of one transaction have one time, and it never falls along a chain.
    ts           timestamptz NOT NULL,
    -- The transaction: who did it is said by its audit entry.
    tx           bigint      NOT NULL,
    kind         text        NOT NULL,
    actor        text        NOT NULL,
    operation_id text        NOT NULL,
    command_id   text        NOT NULL,
    -- An object of strings. json and not jsonb: the hash is over these very bytes.
    fields       json        NOT NULL,
    -- The hash of the entry before, empty in the first one.
    prev_hash    bytea       NOT NULL,
    -- SHA-256 of prev_hash and the other columns; controller/timeline says how they are encoded.
    hash         bytea       NOT NULL,
    PRIMARY KEY (machine_id, seq)
);

CREATE FUNCTION refuse_rewriting() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'rows of % never change', TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
END $$;
CREATE TRIGGER machine_timeline_keep BEFORE UPDATE OR DELETE ON machine_timeline
    FOR EACH ROW EXECUTE FUNCTION refuse_rewriting();
CREATE TRIGGER machine_timeline_keep_all BEFORE TRUNCATE ON machine_timeline
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_rewriting();

-- The data of an audit row is in the chain as a salted digest. Scrubbing empties data and salt; the digest then says nothing.
ALTER TABLE audit_log ADD COLUMN salt bytea;
ALTER TABLE audit_log ALTER COLUMN salt SET DEFAULT uuid_send(gen_random_uuid());

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

-- The triggers. Fields are strings; what is empty is left out, and so is what people typed. Of a change only rows whose kept
-- columns differ become entries; that is asked inside the functions, since WHEN clauses are parsed anew for every statement.

CREATE FUNCTION timeline_of_machine() RETURNS trigger LANGUAGE plpgsql AS $$
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
CREATE TRIGGER machines_timeline AFTER INSERT OR UPDATE ON machines FOR EACH ROW EXECUTE FUNCTION timeline_of_machine();

CREATE FUNCTION timeline_of_condition() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        PERFORM timeline_append(OLD.machine_id, 'condition', '', '', '', jsonb_build_object('type', OLD.type, 'status', '')::text);
    ELSIF TG_OP = 'INSERT' OR NEW.status <> OLD.status OR NEW.reason <> OLD.reason OR NEW.message <> OLD.message THEN
        PERFORM timeline_append(NEW.machine_id, 'condition', '', '', '', jsonb_build_object(
            'type', NEW.type, 'status', NEW.status::text, 'reason', NEW.reason, 'message', NEW.message)::text);
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER machine_conditions_timeline AFTER INSERT OR UPDATE OR DELETE ON machine_conditions
    FOR EACH ROW EXECUTE FUNCTION timeline_of_condition();

CREATE FUNCTION timeline_of_operation() RETURNS trigger LANGUAGE plpgsql AS $$
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
CREATE TRIGGER operations_timeline AFTER INSERT OR UPDATE ON operations FOR EACH ROW EXECUTE FUNCTION timeline_of_operation();

CREATE FUNCTION timeline_of_step() RETURNS trigger LANGUAGE plpgsql AS $$
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
-- A step that has not begun is not worth an entry: the plan is known.
CREATE TRIGGER operation_steps_timeline AFTER UPDATE ON operation_steps FOR EACH ROW EXECUTE FUNCTION timeline_of_step();

CREATE FUNCTION timeline_of_command() RETURNS trigger LANGUAGE plpgsql AS $$
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
CREATE TRIGGER commands_timeline AFTER INSERT OR UPDATE ON commands FOR EACH ROW EXECUTE FUNCTION timeline_of_command();

CREATE FUNCTION timeline_of_node_state() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM timeline_append(NEW.machine_id, 'node_state', NEW.user_id, '', '', jsonb_build_object(
        'from', NEW.from_state, 'to', NEW.to_state, 'by', NEW.triggered_by, 'log_id', NEW.id::text)::text);
    RETURN NULL;
END $$;
CREATE TRIGGER node_state_log_timeline AFTER INSERT ON node_state_log FOR EACH ROW EXECUTE FUNCTION timeline_of_node_state();

CREATE FUNCTION timeline_of_audit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM timeline_append(coalesce((SELECT m.machine_id FROM machines m WHERE m.machine_id = NEW.target_id), ''), 'audit',
        NEW.actor, NEW.operation_id, '', jsonb_strip_nulls(jsonb_build_object(
            'audit_id', NEW.audit_id::text, 'verb', NEW.verb, 'target', NEW.target_id, 'request_id', nullif(NEW.request_id, ''),
            'at', ((extract(epoch FROM NEW.ts) * 1000000)::bigint)::text,
            'data_digest', encode(sha256(NEW.salt || convert_to(NEW.event_data::text, 'UTF8')), 'hex')))::text);
    RETURN NULL;
END $$;
CREATE TRIGGER audit_log_timeline AFTER INSERT ON audit_log FOR EACH ROW EXECUTE FUNCTION timeline_of_audit();

-- Machines that are there already begin with what they are. Their finished operations are counted, not repeated.
SET LOCAL statement_timeout = 0;

SELECT timeline_append(m.machine_id, 'snapshot', '', '', '', jsonb_strip_nulls(jsonb_build_object(
    'phase', m.phase, 'node_state', m.node_state, 'boot_mode', m.boot_mode,
    'spec', encode(sha256(convert_to(m.spec::text || m.labels::text, 'UTF8')), 'hex'),
    'current_operation_id', m.current_operation_id, 'unresolved_command_id', m.unresolved_command_id, 'agent_id', m.agent_id,
    'boot_id', nullif(m.boot_id, ''), 'os_image_digest', nullif(m.os_image_digest, ''), 'power_state', nullif(m.power_state, ''),
    'install_attempts', nullif(m.install_attempts, 0)::text, 'plan_id', m.plan_id,
    'deleted', CASE WHEN m.deleted_at IS NOT NULL THEN 'true' END,
    'operations_before', (SELECT count(*)::text FROM operations o WHERE o.target_id = m.machine_id AND o.finished_at IS NOT NULL)))::text)
FROM machines m ORDER BY m.machine_id;

SELECT timeline_append(c.machine_id, 'condition', '', '', '', jsonb_build_object(
    'type', c.type, 'status', c.status::text, 'reason', c.reason, 'message', c.message)::text)
FROM machine_conditions c ORDER BY c.machine_id, c.type;

SELECT timeline_append(o.target_id, 'operation', '', o.operation_id, '', jsonb_strip_nulls(jsonb_build_object(
    'type', o.type, 'phase', o.phase, 'stage', nullif(o.current_stage, ''), 'wait_reason', nullif(o.wait_reason, ''),
    'cancel_requested', CASE WHEN o.cancel_requested_at IS NOT NULL THEN 'true' END, 'error', o.error::text,
    'evidence', nullif(o.evidence::text, '{}')))::text)
FROM operations o WHERE o.finished_at IS NULL ORDER BY o.target_id;

SELECT timeline_append(o.target_id, 'step', '', o.operation_id, '', jsonb_strip_nulls(jsonb_build_object(
    'step', s.name, 'state', s.state, 'retries', nullif(s.retry_count, 0)::text, 'evidence', nullif(s.evidence::text, '{}')))::text)
FROM operation_steps s JOIN operations o USING (operation_id)
WHERE o.finished_at IS NULL AND s.state <> 'WAITING' ORDER BY o.target_id, s.idx;

SELECT timeline_append(c.target_id, 'command', '', c.operation_id, c.command_id, jsonb_strip_nulls(jsonb_build_object(
    'kind', c.kind, 'step', c.step_name, 'attempt', c.attempt::text, 'executor_id', c.executor_id, 'state', c.state,
    'claimed', CASE WHEN c.claimed_at IS NOT NULL THEN 'true' END, 'outcome', nullif(c.outcome, ''), 'reason', nullif(c.reason, ''),
    'evidence', nullif(c.evidence::text, '{}'), 'settled_by', nullif(c.settled_by, '')))::text)
FROM commands c JOIN operations o USING (operation_id) JOIN machines m ON m.machine_id = c.target_id
WHERE o.finished_at IS NULL OR c.command_id = m.unresolved_command_id ORDER BY c.target_id, c.created_at;
