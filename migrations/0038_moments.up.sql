-- What lists showed of a machine at any moment. Histories have no labels and no spec, and would have to be read from their start;
-- here each state of a machine is a row, so that the state at a moment is one step down an index.

-- What clients have said of a machine: labels and spec, by the digest that the machine's history has of them. Each machine has its
-- own, so that no two transactions wait for one another.
CREATE TABLE machine_words (
    machine_id text  NOT NULL,
    digest     bytea NOT NULL,
    labels     jsonb NOT NULL,
    spec       jsonb NOT NULL,
    PRIMARY KEY (machine_id, digest)
);

-- A row for each transaction that has stamped the machine: the columns of machines that clients see, and its conditions.
CREATE TABLE machine_states (
    machine_id            text        NOT NULL,
    -- The time of the history's entry of the same transaction, where it has one. It never falls along a machine's versions.
    at                    timestamptz NOT NULL,
    version               bigint      NOT NULL,
    -- The digest of machine_words.
    said                  bytea       NOT NULL,
    phase                 text        NOT NULL,
    node_state            text        NOT NULL,
    node_state_changed_at timestamptz NOT NULL,
    current_operation_id  text,
    active_workflow_id    text,
    unresolved_command_id text,
    agent_id              text,
    boot_id               text        NOT NULL,
    simulated             boolean     NOT NULL,
    agentless             boolean     NOT NULL,
    os_image_digest       text        NOT NULL,
    power_state           text        NOT NULL,
    power_state_at        timestamptz,
    boot_mode             text        NOT NULL,
    install_attempts      integer     NOT NULL,
    last_install_error    text        NOT NULL,
    first_provisioned_at  timestamptz,
    identity_level        text        NOT NULL,
    tpm_key_digest        bytea,
    tpm_key_trust         text        NOT NULL,
    tpm_key_at            timestamptz,
    probe_ip              text        NOT NULL,
    updated_at            timestamptz NOT NULL,
    deleted_at            timestamptz,
    -- The conditions, each by its place.
    condition_types       text[]        NOT NULL,
    condition_statuses    boolean[]     NOT NULL,
    condition_reasons     text[]        NOT NULL,
    condition_messages    text[]        NOT NULL,
    condition_times       timestamptz[] NOT NULL,
    PRIMARY KEY (machine_id, at, version)
);
CREATE TRIGGER machine_states_keep BEFORE UPDATE ON machine_states FOR EACH ROW EXECUTE FUNCTION refuse_rewriting();

-- Moments before this time cannot be answered: nothing was kept then, or retention has removed it.
ALTER TABLE cluster_state ADD COLUMN states_since timestamptz NOT NULL DEFAULT clock_timestamp();

-- machine_states_add keeps the states of the machines that a transaction has stamped: this one, which has locked their rows.
CREATE FUNCTION machine_states_add(stamp xid8) RETURNS text LANGUAGE plpgsql AS $$
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

-- The first change of machines in a transaction has their states written when it commits, after its entries of histories. What
-- says so is a setting, which ends with the transaction and which a savepoint rolls back.
CREATE FUNCTION machine_states_due() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    done text;
BEGIN
    IF coalesce(current_setting('ingot.states', true), '') = '' AND EXISTS (SELECT 1 FROM rows_after) THEN
        INSERT INTO timeline_due AS d (backend) VALUES (pg_backend_pid()) ON CONFLICT (backend) DO UPDATE SET times = d.times + 1;
        done := set_config('ingot.states', 'due', true);
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER machines_timeline_states_insert AFTER INSERT ON machines REFERENCING NEW TABLE AS rows_after
    FOR EACH STATEMENT EXECUTE FUNCTION machine_states_due();
CREATE TRIGGER machines_timeline_states_update AFTER UPDATE ON machines REFERENCING NEW TABLE AS rows_after
    FOR EACH STATEMENT EXECUTE FUNCTION machine_states_due();

CREATE FUNCTION machine_states_commit() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    done text;
BEGIN
    IF current_setting('ingot.states', true) <> '' THEN
        done := set_config('ingot.states', '', true);
        done := machine_states_add(pg_current_xact_id());
    END IF;
    RETURN NULL;
END $$;
-- By its name it comes after timeline_due_commit.
CREATE CONSTRAINT TRIGGER timeline_due_states AFTER INSERT OR UPDATE ON timeline_due
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION machine_states_commit();

SET LOCAL statement_timeout = 0;

-- Machines that are there already begin with what they are. The triggers hold off whoever would change them meanwhile.
DO $$
DECLARE
    done text;
BEGIN
    SELECT min(machine_states_add(x.change_xid)) INTO done FROM (SELECT DISTINCT change_xid FROM machines) x;
    UPDATE cluster_state SET states_since = clock_timestamp();
END $$;
