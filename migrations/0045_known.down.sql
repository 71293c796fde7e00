-- Conditions return to what their witnesses reported last.
UPDATE machine_conditions SET status = (last_known ->> 'status')::boolean, reason = last_known ->> 'reason',
    message = last_known ->> 'message', last_transition = (last_known ->> 'last_transition')::timestamptz
WHERE NOT known AND last_known IS NOT NULL;
UPDATE machines SET power_state = last_power_state WHERE last_power_state <> '';
SET CONSTRAINTS ALL IMMEDIATE;

CREATE OR REPLACE FUNCTION machine_states_add(stamp xid8) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    WITH stamped AS MATERIALIZED (
        SELECT m.*, sha256(convert_to(m.spec::text || m.labels::text, 'UTF8')) AS said, last.said AS said_last,
               CASE WHEN entry.tx = pg_current_xact_id()::text::bigint THEN greatest(entry.ts, last.at)
                    ELSE greatest(entry.ts, last.at, clock_timestamp()) END AS at
        FROM machines m
        LEFT JOIN LATERAL (SELECT t.ts, t.tx FROM machine_timeline t
                           WHERE t.machine_id = m.machine_id ORDER BY t.seq DESC LIMIT 1) entry ON true
        LEFT JOIN LATERAL (SELECT s.at, s.version, s.said FROM machine_states s
                           WHERE s.machine_id = m.machine_id ORDER BY s.at DESC, s.version DESC LIMIT 1) last ON true
        WHERE m.change_xid = stamp AND last.version IS DISTINCT FROM m.version
    ), words AS (
        INSERT INTO machine_words (machine_id, digest, labels, spec)
        SELECT machine_id, said, labels, spec FROM stamped WHERE said IS DISTINCT FROM said_last
        ON CONFLICT DO NOTHING
    )
    INSERT INTO machine_states
    SELECT m.machine_id, m.at, m.version, m.said, m.phase, m.node_state, m.node_state_changed_at, m.current_operation_id,
           m.active_workflow_id, m.unresolved_command_id, m.agent_id, m.boot_id, m.simulated, m.agentless, m.os_image_digest,
           m.power_state, m.power_state_at, m.boot_mode, m.install_attempts, m.last_install_error, m.first_provisioned_at,
           m.identity_level, m.tpm_key_digest, m.tpm_key_trust, m.tpm_key_at, m.probe_ip, m.updated_at, m.deleted_at,
           c.types, c.statuses, c.reasons, c.messages, c.times
    FROM stamped m
    CROSS JOIN LATERAL (
        SELECT coalesce(array_agg(x.type ORDER BY x.type), '{}') AS types,
               coalesce(array_agg(x.status ORDER BY x.type), '{}') AS statuses,
               coalesce(array_agg(x.reason ORDER BY x.type), '{}') AS reasons,
               coalesce(array_agg(x.message ORDER BY x.type), '{}') AS messages,
               coalesce(array_agg(x.last_transition ORDER BY x.type), '{}') AS times
        FROM machine_conditions x WHERE x.machine_id = m.machine_id) c;
    RETURN '';
END $$;

ALTER TABLE machine_states DROP COLUMN condition_knowns;

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

CREATE OR REPLACE FUNCTION webhook_note_machines() RETURNS trigger LANGUAGE plpgsql AS $$
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

DROP TABLE webhook_sites;
ALTER TABLE sites DROP COLUMN silent_since;
ALTER TABLE machines DROP COLUMN last_power_state;
DROP INDEX machine_conditions_unknown;
ALTER TABLE machine_conditions DROP COLUMN known, DROP COLUMN observed_at, DROP COLUMN observed_by, DROP COLUMN last_known;
