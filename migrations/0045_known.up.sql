-- Conditions have three values: true, false and unknown. A condition is unknown while its witness is silent.
ALTER TABLE machine_conditions
    ADD COLUMN known       boolean NOT NULL DEFAULT true,
    -- When, and by which agent, an unknown condition was observed last. Of a known one the heartbeats of its witness tell.
    ADD COLUMN observed_at timestamptz,
    ADD COLUMN observed_by text    NOT NULL DEFAULT '',
    -- Status, reason, message and last_transition as its witness reported them last; NULL while the condition is known.
    ADD COLUMN last_known  jsonb;
CREATE INDEX machine_conditions_unknown ON machine_conditions (machine_id, type) WHERE NOT known;

-- The power state that the BMC reported last, while power_state is unknown because the site is silent; empty otherwise.
ALTER TABLE machines ADD COLUMN last_power_state text NOT NULL DEFAULT '';

-- When the last agent of a silent site was heard last; NULL while an agent of the site is heard.
ALTER TABLE sites ADD COLUMN silent_since timestamptz;

-- Sites that fell silent or were heard again, for webhooks. A row goes when its deliveries are there.
CREATE TABLE webhook_sites (
    change_id bigserial   PRIMARY KEY,
    site      text        NOT NULL,
    -- 'silent' or 'heard'.
    kind      text        NOT NULL,
    ts        timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- The silence of a site is one event. Its transaction sets ingot.site_event, so that its machines add none.
CREATE OR REPLACE FUNCTION webhook_note_machines() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('ingot.site_event', true) = 'on'
        OR NOT EXISTS (SELECT 1 FROM webhooks WHERE wants_machines AND state = 'active') THEN
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

-- An entry of a history has the field known only where it is false.
CREATE OR REPLACE FUNCTION timeline_of_condition() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    done text;
BEGIN
    IF TG_OP = 'DELETE' THEN
        done := timeline_note(OLD.machine_id, json_build_array('condition', '', '', '', json_build_object('type', OLD.type, 'status', '')));
    ELSIF TG_OP = 'INSERT' OR NEW.status <> OLD.status OR NEW.reason <> OLD.reason OR NEW.message <> OLD.message
        OR NEW.known <> OLD.known THEN
        done := timeline_note(NEW.machine_id, json_build_array('condition', '', '', '', json_strip_nulls(json_build_object(
            'type', NEW.type, 'status', NEW.status::text, 'reason', NEW.reason, 'message', NEW.message,
            'known', CASE WHEN NOT NEW.known THEN 'false' END))));
    END IF;
    RETURN NULL;
END $$;

-- The first elements belong to the first conditions; states from before this migration have none, and all are known.
ALTER TABLE machine_states ADD COLUMN condition_knowns boolean[] NOT NULL DEFAULT '{}';

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
           c.types, c.statuses, c.reasons, c.messages, c.times, c.knowns
    FROM stamped m
    CROSS JOIN LATERAL (
        SELECT coalesce(array_agg(x.type ORDER BY x.type), '{}') AS types,
               coalesce(array_agg(x.status ORDER BY x.type), '{}') AS statuses,
               coalesce(array_agg(x.reason ORDER BY x.type), '{}') AS reasons,
               coalesce(array_agg(x.message ORDER BY x.type), '{}') AS messages,
               coalesce(array_agg(x.last_transition ORDER BY x.type), '{}') AS times,
               coalesce(array_agg(x.known ORDER BY x.type), '{}') AS knowns
        FROM machine_conditions x WHERE x.machine_id = m.machine_id) c;
    RETURN '';
END $$;
