-- Decisions on many machines are stored by statements that write many rows. What watched row by row watches statements now, so
-- that what it costs to begin watching is paid once for all rows.

-- Rows of these tables are written by code that has locked the machine and read what they point to, and nothing that they point to
-- is ever deleted. A lookup and a lock for each of them, in every transaction, proves nothing more.
ALTER TABLE operations DROP CONSTRAINT operations_target_id_fkey, DROP CONSTRAINT operations_plan_id_fkey;
ALTER TABLE operation_steps DROP CONSTRAINT operation_steps_operation_id_fkey;
ALTER TABLE operation_events DROP CONSTRAINT operation_events_operation_id_fkey;
ALTER TABLE commands DROP CONSTRAINT commands_operation_id_fkey, DROP CONSTRAINT commands_target_id_fkey,
    DROP CONSTRAINT commands_executor_id_fkey;
CREATE TRIGGER plans_keep BEFORE DELETE ON plans FOR EACH ROW EXECUTE FUNCTION refuse_delete();
CREATE TRIGGER agents_keep BEFORE DELETE ON agents FOR EACH ROW EXECUTE FUNCTION refuse_delete();

-- Histories. A statement's changes are noted in the setting ingot.timeline at once, in the form that they had. The first of a
-- transaction writes this backend's row here, whose deferred trigger writes the entries when the transaction commits. There is
-- one row for each backend, so that none waits for another's; they mean nothing after a crash.
CREATE UNLOGGED TABLE timeline_due (
    backend integer PRIMARY KEY,
    times   bigint NOT NULL DEFAULT 1
);
CREATE CONSTRAINT TRIGGER timeline_due_commit AFTER INSERT OR UPDATE ON timeline_due
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION timeline_commit();

-- timeline_add notes changes, each as timeline_note does it.
CREATE FUNCTION timeline_add(changes text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    noted text := current_setting('ingot.timeline', true);
BEGIN
    IF coalesce(noted, '') = '' THEN
        INSERT INTO timeline_due AS d (backend) VALUES (pg_backend_pid()) ON CONFLICT (backend) DO UPDATE SET times = d.times + 1;
    END IF;
    noted := set_config('ingot.timeline', concat(noted, changes), true);
    IF octet_length(noted) > 1000000 THEN
        RETURN timeline_write();
    END IF;
    RETURN '';
END $$;

-- timeline_write writes the entries of what was noted: one for each machine, all by one statement.
CREATE OR REPLACE FUNCTION timeline_write() RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    noted   text := current_setting('ingot.timeline', true);
    machine text := substr(split_part(noted, E'\x1f', 1), 2);
    changes text := replace(noted, concat(E'\x1e', machine, E'\x1f'), ', ');
    waited  boolean;
BEGIN
    IF set_config('ingot.timeline', '', true) = '' AND strpos(changes, E'\x1e') = 0 THEN
        RETURN timeline_enter(machine, concat('[', substr(changes, 3), ']'));
    END IF;
    -- The locks of timeline_enter, in its order. The statement behind sees what was committed until they were there.
    SELECT bool_and(pg_advisory_xact_lock(716422830, l.lane) IS NULL) INTO waited
    FROM (SELECT DISTINCT hashtext(split_part(c.change, E'\x1f', 1)) & 1023 AS lane
          FROM string_to_table(substr(noted, 2), E'\x1e') c(change) ORDER BY 1) l;
    INSERT INTO machine_timeline (machine_id, seq, ts, tx, kind, actor, operation_id, command_id, fields, prev_hash, hash)
    SELECT h.machine, h.seq, h.ts, h.tx, 'changes', '', '', '', h.changes::json, h.prev, sha256(h.prev || convert_to(concat(
        octet_length(h.machine), ':', h.machine, h.seq, ',', (extract(epoch FROM h.ts) * 1000000)::bigint, ',', h.tx,
        ',7:changes0:0:0:', h.changes), 'UTF8'))
    FROM (SELECT e.machine, e.changes, coalesce(last.seq, 0) + 1 AS seq, this.tx, coalesce(last.hash, '') AS prev,
                 CASE WHEN last.tx = this.tx THEN last.ts ELSE greatest(last.ts, clock_timestamp()) END AS ts
          FROM (SELECT split_part(c.change, E'\x1f', 1) AS machine,
                       concat('[', string_agg(split_part(c.change, E'\x1f', 2), ', ' ORDER BY c.n), ']') AS changes
                FROM string_to_table(substr(noted, 2), E'\x1e') WITH ORDINALITY c(change, n) GROUP BY 1) e
          CROSS JOIN (SELECT pg_current_xact_id()::text::bigint AS tx) this
          LEFT JOIN LATERAL (SELECT t.seq, t.ts, t.tx, t.hash FROM machine_timeline t
                             WHERE t.machine_id = e.machine ORDER BY t.seq DESC LIMIT 1) last ON true) h;
    RETURN '';
END $$;

-- What follows says the same as the triggers of rows before it (migration 11), whose functions stay for the way back. Joins are full
-- ones where a statement may change very many rows: those are never done by comparing each row with each, whatever the number of rows was
-- for which they were planned.

CREATE FUNCTION timeline_of_machines() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    changes text;
BEGIN
    IF TG_OP = 'INSERT' THEN
        SELECT string_agg(concat(E'\x1e', n.machine_id, E'\x1f["machine", "", "", "", ', json_strip_nulls(json_build_object(
            'phase', n.phase, 'node_state', n.node_state, 'boot_mode', n.boot_mode,
            'install_attempts', nullif(n.install_attempts, 0)::text,
            'spec', encode(sha256(convert_to(n.spec::text || n.labels::text, 'UTF8')), 'hex'),
            'current_operation_id', n.current_operation_id, 'unresolved_command_id', n.unresolved_command_id,
            'agent_id', n.agent_id, 'boot_id', nullif(n.boot_id, ''), 'os_image_digest', nullif(n.os_image_digest, ''),
            'plan_id', n.plan_id, 'power_state', nullif(n.power_state, ''),
            'deleted', CASE WHEN n.deleted_at IS NOT NULL THEN 'true' END)), ']'), '')
        INTO changes FROM rows_after n;
    ELSE
        SELECT string_agg(concat(E'\x1e', n.machine_id, E'\x1f["machine", "", "", "", ', json_strip_nulls(json_build_object(
            'phase', CASE WHEN n.phase <> o.phase THEN n.phase END,
            'node_state', CASE WHEN n.node_state <> o.node_state THEN n.node_state END,
            'boot_mode', CASE WHEN n.boot_mode <> o.boot_mode THEN n.boot_mode END,
            'install_attempts', CASE WHEN n.install_attempts <> o.install_attempts THEN n.install_attempts::text END,
            'spec', CASE WHEN n.spec <> o.spec OR n.labels <> o.labels
                    THEN encode(sha256(convert_to(n.spec::text || n.labels::text, 'UTF8')), 'hex') END,
            'current_operation_id', CASE WHEN n.current_operation_id IS DISTINCT FROM o.current_operation_id
                                    THEN coalesce(n.current_operation_id, '') END,
            'unresolved_command_id', CASE WHEN n.unresolved_command_id IS DISTINCT FROM o.unresolved_command_id
                                     THEN coalesce(n.unresolved_command_id, '') END,
            'agent_id', CASE WHEN n.agent_id IS DISTINCT FROM o.agent_id THEN coalesce(n.agent_id, '') END,
            'boot_id', CASE WHEN n.boot_id <> o.boot_id THEN n.boot_id END,
            'os_image_digest', CASE WHEN n.os_image_digest <> o.os_image_digest THEN n.os_image_digest END,
            'plan_id', CASE WHEN n.plan_id IS DISTINCT FROM o.plan_id THEN coalesce(n.plan_id, '') END,
            'power_state', CASE WHEN n.power_state <> o.power_state THEN n.power_state END,
            'deleted', CASE WHEN n.deleted_at IS NOT NULL AND o.deleted_at IS NULL THEN 'true'
                            WHEN n.deleted_at IS NULL AND o.deleted_at IS NOT NULL THEN '' END)), ']'), '')
        INTO changes FROM rows_after n FULL JOIN rows_before o ON o.machine_id = n.machine_id
        -- Rows of machines are stamped more often than they change.
        WHERE n.phase <> o.phase OR n.node_state <> o.node_state OR n.boot_mode <> o.boot_mode
            OR n.install_attempts <> o.install_attempts OR n.spec <> o.spec OR n.labels <> o.labels
            OR n.current_operation_id IS DISTINCT FROM o.current_operation_id
            OR n.unresolved_command_id IS DISTINCT FROM o.unresolved_command_id OR n.agent_id IS DISTINCT FROM o.agent_id
            OR n.boot_id <> o.boot_id OR n.os_image_digest <> o.os_image_digest OR n.plan_id IS DISTINCT FROM o.plan_id
            OR n.power_state <> o.power_state OR (n.deleted_at IS NULL) <> (o.deleted_at IS NULL);
    END IF;
    IF changes IS NOT NULL THEN
        changes := timeline_add(changes);
    END IF;
    RETURN NULL;
END $$;
DROP TRIGGER machines_timeline ON machines;
DROP TRIGGER machines_timeline_commit ON machines;
CREATE TRIGGER machines_timeline_insert AFTER INSERT ON machines REFERENCING NEW TABLE AS rows_after
    FOR EACH STATEMENT EXECUTE FUNCTION timeline_of_machines();
CREATE TRIGGER machines_timeline_update AFTER UPDATE ON machines REFERENCING OLD TABLE AS rows_before NEW TABLE AS rows_after
    FOR EACH STATEMENT EXECUTE FUNCTION timeline_of_machines();

CREATE FUNCTION timeline_of_operations() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    changes text;
BEGIN
    IF TG_OP = 'INSERT' THEN
        SELECT string_agg(concat(E'\x1e', n.target_id, E'\x1f', json_build_array('operation', '', n.operation_id, '',
            json_strip_nulls(json_build_object(
                'type', n.type, 'phase', n.phase, 'stage', nullif(n.current_stage, ''), 'wait_reason', nullif(n.wait_reason, ''),
                'cancel_requested', CASE WHEN n.cancel_requested_at IS NOT NULL THEN 'true' END, 'error', n.error::text,
                'evidence', nullif(n.evidence::text, '{}'))))), '')
        INTO changes FROM rows_after n;
    ELSE
        SELECT string_agg(concat(E'\x1e', n.target_id, E'\x1f', json_build_array('operation', '', n.operation_id, '',
            json_strip_nulls(json_build_object(
                'type', n.type, 'phase', n.phase, 'stage', nullif(n.current_stage, ''), 'wait_reason', nullif(n.wait_reason, ''),
                'cancel_requested', CASE WHEN n.cancel_requested_at IS NOT NULL THEN 'true' END, 'error', n.error::text,
                'evidence', nullif(n.evidence::text, '{}'))))), '')
        INTO changes FROM rows_after n FULL JOIN rows_before o ON o.operation_id = n.operation_id
        WHERE n.phase <> o.phase OR n.current_stage <> o.current_stage OR n.wait_reason <> o.wait_reason
            OR n.error IS DISTINCT FROM o.error OR n.evidence <> o.evidence
            OR (n.cancel_requested_at IS NULL) <> (o.cancel_requested_at IS NULL);
    END IF;
    IF changes IS NOT NULL THEN
        changes := timeline_add(changes);
    END IF;
    RETURN NULL;
END $$;
DROP TRIGGER operations_timeline ON operations;
DROP TRIGGER operations_timeline_commit ON operations;
CREATE TRIGGER operations_timeline_insert AFTER INSERT ON operations REFERENCING NEW TABLE AS rows_after
    FOR EACH STATEMENT EXECUTE FUNCTION timeline_of_operations();
CREATE TRIGGER operations_timeline_update AFTER UPDATE ON operations REFERENCING OLD TABLE AS rows_before NEW TABLE AS rows_after
    FOR EACH STATEMENT EXECUTE FUNCTION timeline_of_operations();

CREATE FUNCTION timeline_of_steps() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    changes text;
BEGIN
    SELECT string_agg(concat(E'\x1e', (SELECT p.target_id FROM operations p WHERE p.operation_id = n.operation_id), E'\x1f',
        json_build_array('step', '', n.operation_id, '', json_strip_nulls(json_build_object(
            'step', n.name, 'state', n.state, 'retries', nullif(n.retry_count, 0)::text,
            'message', nullif(n.message, ''), 'evidence', nullif(n.evidence::text, '{}'))))), '')
    INTO changes FROM rows_after n JOIN rows_before o ON o.operation_id = n.operation_id AND o.idx = n.idx
    WHERE n.state <> o.state OR n.retry_count <> o.retry_count OR n.evidence <> o.evidence OR n.message <> o.message;
    IF changes IS NOT NULL THEN
        changes := timeline_add(changes);
    END IF;
    RETURN NULL;
END $$;
DROP TRIGGER operation_steps_timeline ON operation_steps;
DROP TRIGGER operation_steps_timeline_commit ON operation_steps;
CREATE TRIGGER operation_steps_timeline AFTER UPDATE ON operation_steps REFERENCING OLD TABLE AS rows_before NEW TABLE AS rows_after
    FOR EACH STATEMENT EXECUTE FUNCTION timeline_of_steps();

CREATE FUNCTION timeline_of_commands() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    changes text;
BEGIN
    IF TG_OP = 'INSERT' THEN
        SELECT string_agg(concat(E'\x1e', n.target_id, E'\x1f', json_build_array(
            'command', CASE WHEN n.state IN ('ACKED', 'GRANTED', 'DONE') THEN n.executor_id ELSE '' END,
            n.operation_id, n.command_id, json_strip_nulls(json_build_object(
                'kind', n.kind, 'step', n.step_name, 'attempt', n.attempt::text, 'executor_id', n.executor_id,
                'state', n.state, 'claimed', CASE WHEN n.claimed_at IS NOT NULL THEN 'true' END,
                'outcome', nullif(n.outcome, ''), 'reason', nullif(n.reason, ''), 'evidence', nullif(n.evidence::text, '{}'),
                'settled_by', nullif(n.settled_by, ''))))), '')
        INTO changes FROM rows_after n;
    ELSE
        SELECT string_agg(concat(E'\x1e', n.target_id, E'\x1f', json_build_array(
            'command', CASE WHEN n.state IN ('ACKED', 'GRANTED', 'DONE') THEN n.executor_id ELSE '' END,
            n.operation_id, n.command_id, json_strip_nulls(json_build_object(
                'kind', n.kind, 'step', n.step_name, 'attempt', n.attempt::text, 'executor_id', n.executor_id,
                'state', n.state, 'claimed', CASE WHEN n.claimed_at IS NOT NULL THEN 'true' END,
                'outcome', nullif(n.outcome, ''), 'reason', nullif(n.reason, ''), 'evidence', nullif(n.evidence::text, '{}'),
                'settled_by', nullif(n.settled_by, ''))))), '')
        INTO changes FROM rows_after n JOIN rows_before o ON o.command_id = n.command_id
        WHERE n.state <> o.state OR n.outcome <> o.outcome OR n.reason <> o.reason OR n.evidence <> o.evidence
            OR n.settled_by <> o.settled_by OR (n.claimed_at IS NULL) <> (o.claimed_at IS NULL);
    END IF;
    IF changes IS NOT NULL THEN
        changes := timeline_add(changes);
    END IF;
    RETURN NULL;
END $$;
DROP TRIGGER commands_timeline ON commands;
DROP TRIGGER commands_timeline_commit ON commands;
CREATE TRIGGER commands_timeline_insert AFTER INSERT ON commands REFERENCING NEW TABLE AS rows_after
    FOR EACH STATEMENT EXECUTE FUNCTION timeline_of_commands();
CREATE TRIGGER commands_timeline_update AFTER UPDATE ON commands REFERENCING OLD TABLE AS rows_before NEW TABLE AS rows_after
    FOR EACH STATEMENT EXECUTE FUNCTION timeline_of_commands();

CREATE FUNCTION timeline_of_audits() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    changes text;
BEGIN
    SELECT string_agg(concat(E'\x1e', (SELECT m.machine_id FROM machines m WHERE m.machine_id = n.target_id), E'\x1f',
        json_build_array('audit', n.actor, n.operation_id, '', json_strip_nulls(json_build_object(
            'audit_id', n.audit_id::text, 'verb', n.verb, 'target', n.target_id, 'request_id', nullif(n.request_id, ''),
            'at', ((extract(epoch FROM n.ts) * 1000000)::bigint)::text,
            'data_digest', encode(sha256(n.salt || convert_to(n.event_data::text, 'UTF8')), 'hex'))))), '')
    INTO changes FROM rows_after n;
    IF changes IS NOT NULL THEN
        changes := timeline_add(changes);
    END IF;
    RETURN NULL;
END $$;
DROP TRIGGER audit_log_timeline ON audit_log;
DROP TRIGGER audit_log_timeline_commit ON audit_log;
CREATE TRIGGER audit_log_timeline AFTER INSERT ON audit_log REFERENCING NEW TABLE AS rows_after
    FOR EACH STATEMENT EXECUTE FUNCTION timeline_of_audits();

-- What webhooks are to hear of machines.
CREATE FUNCTION webhook_note_machines() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM webhooks WHERE wants_machines AND state = 'active') THEN
        RETURN NULL;
    END IF;
    IF TG_OP = 'INSERT' THEN
        INSERT INTO webhook_outbox (machine_id, kind) SELECT n.machine_id, 'registered' FROM rows_after n;
        RETURN NULL;
    END IF;
    INSERT INTO webhook_outbox (machine_id, kind)
    SELECT n.machine_id, 'updated' FROM rows_after n FULL JOIN rows_before o ON o.machine_id = n.machine_id
    WHERE n.version IS DISTINCT FROM o.version ON CONFLICT DO NOTHING;
    INSERT INTO webhook_outbox (machine_id, kind, from_value, to_value)
    SELECT n.machine_id, 'phase_changed', o.phase, n.phase FROM rows_after n FULL JOIN rows_before o ON o.machine_id = n.machine_id
    WHERE n.phase IS DISTINCT FROM o.phase;
    INSERT INTO webhook_outbox (machine_id, kind, from_value, to_value)
    SELECT n.machine_id, 'node_state_changed', o.node_state, n.node_state
    FROM rows_after n FULL JOIN rows_before o ON o.machine_id = n.machine_id
    WHERE n.node_state IS DISTINCT FROM o.node_state;
    INSERT INTO webhook_outbox (machine_id, kind)
    SELECT n.machine_id, 'deleted' FROM rows_after n FULL JOIN rows_before o ON o.machine_id = n.machine_id
    WHERE (n.deleted_at IS NULL) IS DISTINCT FROM (o.deleted_at IS NULL) AND n.deleted_at IS NOT NULL;
    RETURN NULL;
END $$;
DROP TRIGGER machines_webhooks ON machines;
CREATE TRIGGER machines_webhooks_insert AFTER INSERT ON machines REFERENCING NEW TABLE AS rows_after
    FOR EACH STATEMENT EXECUTE FUNCTION webhook_note_machines();
CREATE TRIGGER machines_webhooks_update AFTER UPDATE ON machines REFERENCING OLD TABLE AS rows_before NEW TABLE AS rows_after
    FOR EACH STATEMENT EXECUTE FUNCTION webhook_note_machines();
