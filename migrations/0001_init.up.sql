-- Ingot's schema. Rules that must hold whatever the code does are constraints and triggers here:
--   one active operation per machine, one unsettled command per machine, a finished operation never changes,
--   an active operation always has a time at which the engine looks again, machines are tombstoned and never deleted,
--   and every change that a client can see stamps the machine's row with the id of the changing transaction.

CREATE TABLE cluster_state (
    singleton     boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    -- Changes after a restore or a failover; cursors of another incarnation are refused.
    incarnation   text        NOT NULL,
    -- Set by a restore: nothing is started or granted until an admin lifts it.
    frozen_since  timestamptz,
    created_at    timestamptz NOT NULL DEFAULT now()
);
INSERT INTO cluster_state (incarnation) VALUES (replace(gen_random_uuid()::text, '-', ''));

CREATE TABLE controllers (
    controller_id text PRIMARY KEY,
    version       text        NOT NULL,
    started_at    timestamptz NOT NULL,
    lease_until   timestamptz NOT NULL
);

CREATE TABLE sites (
    site          text PRIMARY KEY,
    created_at    timestamptz NOT NULL DEFAULT now()
);
INSERT INTO sites (site) VALUES ('default');

CREATE TABLE machines (
    machine_id            text PRIMARY KEY,
    external_id           text UNIQUE,
    labels                jsonb       NOT NULL DEFAULT '{}',
    -- MachineSpec as protojson with proto field names.
    spec                  jsonb       NOT NULL DEFAULT '{}',
    provider              text        NOT NULL GENERATED ALWAYS AS (coalesce(spec ->> 'provider', '')) STORED,
    site                  text        NOT NULL GENERATED ALWAYS AS (coalesce(spec ->> 'site', '')) STORED,
    region                text        NOT NULL GENERATED ALWAYS AS (coalesce(spec ->> 'region', '')) STORED,
    phase                 text        NOT NULL CHECK (phase IN ('FACTORY_READY', 'READY', 'MAINTENANCE')),
    node_state            text        NOT NULL,
    node_state_changed_at timestamptz NOT NULL,
    current_operation_id  text,
    -- A granted command whose outcome nobody knows; disruptive work is refused until it is settled.
    unresolved_command_id text,
    -- The machine's own agent and what its last session said.
    agent_id              text,
    boot_id               text        NOT NULL DEFAULT '',
    simulated             boolean     NOT NULL DEFAULT false,
    os_image_digest       text        NOT NULL DEFAULT '',
    config_generation     bigint      NOT NULL DEFAULT 0,
    version               bigint      NOT NULL DEFAULT 1,
    change_xid            xid8        NOT NULL DEFAULT pg_current_xact_id(),
    created_at            timestamptz NOT NULL,
    updated_at            timestamptz NOT NULL DEFAULT clock_timestamp(),
    deleted_at            timestamptz
);
CREATE INDEX machines_by_change ON machines (change_xid, machine_id);
CREATE INDEX machines_by_updated ON machines (updated_at);
CREATE INDEX machines_by_site ON machines (site);
CREATE INDEX machines_by_agent ON machines (agent_id);
CREATE INDEX machines_by_labels ON machines USING gin (labels jsonb_path_ops);

-- Any real change of a machine's row moves version, updated_at and the change id. The time is the wall clock after the
-- transaction id was taken, so that a reader's safe timestamp can be bounded by the oldest open transaction.
CREATE FUNCTION machines_stamp() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- Generated columns are not computed yet and would differ always; what they are made of is compared.
    NEW.provider := OLD.provider;
    NEW.site := OLD.site;
    NEW.region := OLD.region;
    IF NEW IS DISTINCT FROM OLD THEN
        NEW.change_xid := pg_current_xact_id();
        NEW.updated_at := clock_timestamp();
        NEW.version := OLD.version + 1;
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER machines_stamp BEFORE UPDATE ON machines FOR EACH ROW EXECUTE FUNCTION machines_stamp();

-- No open transaction of this database began before this time. What one of them writes may carry any time since.
CREATE FUNCTION oldest_open_transaction() RETURNS timestamptz LANGUAGE sql VOLATILE AS $$
    SELECT least(clock_timestamp(), coalesce(min(xact_start), clock_timestamp()))
    FROM pg_stat_activity WHERE datname = current_database() AND xact_start IS NOT NULL
$$;

CREATE FUNCTION refuse_delete() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% rows are never deleted', TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
END $$;
CREATE TRIGGER machines_keep BEFORE DELETE ON machines FOR EACH ROW EXECUTE FUNCTION refuse_delete();

-- A change in a child table locks and stamps the machine first.
CREATE FUNCTION machine_child_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND NEW IS NOT DISTINCT FROM OLD THEN
        RETURN NEW;
    END IF;
    IF TG_OP = 'DELETE' THEN
        UPDATE machines SET change_xid = pg_current_xact_id() WHERE machine_id = OLD.machine_id;
        RETURN OLD;
    END IF;
    UPDATE machines SET change_xid = pg_current_xact_id() WHERE machine_id = NEW.machine_id;
    RETURN NEW;
END $$;

CREATE TABLE machine_macs (
    mac        macaddr PRIMARY KEY,
    machine_id text NOT NULL REFERENCES machines
);
CREATE INDEX machine_macs_by_machine ON machine_macs (machine_id);
CREATE TRIGGER machine_macs_changed BEFORE INSERT OR UPDATE OR DELETE ON machine_macs
    FOR EACH ROW EXECUTE FUNCTION machine_child_changed();

CREATE TABLE machine_conditions (
    machine_id      text        NOT NULL REFERENCES machines,
    type            text        NOT NULL,
    status          boolean     NOT NULL,
    reason          text        NOT NULL DEFAULT '',
    message         text        NOT NULL DEFAULT '',
    last_transition timestamptz NOT NULL,
    PRIMARY KEY (machine_id, type)
);
CREATE TRIGGER machine_conditions_changed BEFORE INSERT OR UPDATE OR DELETE ON machine_conditions
    FOR EACH ROW EXECUTE FUNCTION machine_child_changed();

CREATE TABLE plans (
    plan_id      text PRIMARY KEY,
    display_name text        NOT NULL DEFAULT '',
    -- Serialized baremetal.v1.Plan.
    body         bytea       NOT NULL,
    digest       bytea       NOT NULL,
    built_in     boolean     NOT NULL DEFAULT false,
    used_at      timestamptz,
    created_at   timestamptz NOT NULL
);

CREATE TABLE operations (
    operation_id        text PRIMARY KEY,
    target_id           text        NOT NULL REFERENCES machines,
    request_id          text        NOT NULL,
    -- What was asked, field by field, to tell a repeat from a reuse.
    request_body        jsonb       NOT NULL,
    type                text        NOT NULL,
    phase               text        NOT NULL CHECK (phase IN ('PENDING', 'RUNNING', 'SUCCEEDED', 'FAILED', 'CANCELED')),
    params              jsonb       NOT NULL DEFAULT '{}',
    plan_id             text        NOT NULL REFERENCES plans,
    current_step        integer     NOT NULL DEFAULT 0,
    current_stage       text        NOT NULL DEFAULT '',
    wait_reason         text        NOT NULL DEFAULT '',
    wake_at             timestamptz,
    cancel_requested_at timestamptz,
    error               jsonb,
    evidence            jsonb       NOT NULL DEFAULT '{}',
    event_seq           bigint      NOT NULL DEFAULT 0,
    version             bigint      NOT NULL DEFAULT 1,
    created_at          timestamptz NOT NULL,
    started_at          timestamptz,
    finished_at         timestamptz,
    updated_at          timestamptz NOT NULL,
    UNIQUE (target_id, request_id),
    -- Nothing active is ever left without a time at which somebody looks.
    CHECK ((phase IN ('PENDING', 'RUNNING')) = (wake_at IS NOT NULL)),
    CHECK ((phase IN ('PENDING', 'RUNNING')) = (finished_at IS NULL))
);
CREATE UNIQUE INDEX operations_one_active ON operations (target_id) WHERE phase IN ('PENDING', 'RUNNING');
CREATE INDEX operations_due ON operations (wake_at) WHERE phase IN ('PENDING', 'RUNNING');
CREATE INDEX operations_newest ON operations (created_at DESC, operation_id DESC);
CREATE INDEX operations_of_target ON operations (target_id, created_at DESC, operation_id DESC);

CREATE FUNCTION operations_final() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.phase IN ('SUCCEEDED', 'FAILED', 'CANCELED') THEN
        RAISE EXCEPTION 'operation % is finished and never changes', OLD.operation_id
            USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER operations_final BEFORE UPDATE ON operations FOR EACH ROW EXECUTE FUNCTION operations_final();
CREATE TRIGGER operations_keep BEFORE DELETE ON operations FOR EACH ROW EXECUTE FUNCTION refuse_delete();

ALTER TABLE machines ADD CONSTRAINT machines_current_operation
    FOREIGN KEY (current_operation_id) REFERENCES operations DEFERRABLE INITIALLY DEFERRED;

CREATE TABLE operation_steps (
    operation_id text        NOT NULL REFERENCES operations,
    idx          integer     NOT NULL,
    name         text        NOT NULL,
    kind         text        NOT NULL,
    -- Serialized baremetal.v1.Step with its empty fields filled.
    spec         bytea       NOT NULL,
    timeout_ms   bigint      NOT NULL,
    max_retries  integer     NOT NULL,
    state        text        NOT NULL CHECK (state IN ('WAITING', 'RUNNING', 'SUCCEEDED', 'FAILED')),
    retry_count  integer     NOT NULL DEFAULT 0,
    retry_at     timestamptz,
    message      text        NOT NULL DEFAULT '',
    evidence     jsonb       NOT NULL DEFAULT '{}',
    started_at   timestamptz,
    finished_at  timestamptz,
    PRIMARY KEY (operation_id, idx),
    UNIQUE (operation_id, name)
);

-- Progress is a live view, not state: it may be lost, and it moves no version.
CREATE TABLE step_progress (
    operation_id text        NOT NULL,
    idx          integer     NOT NULL,
    percent      integer     NOT NULL,
    message      text        NOT NULL DEFAULT '',
    updated_at   timestamptz NOT NULL,
    PRIMARY KEY (operation_id, idx)
);

CREATE TABLE agents (
    agent_id             text PRIMARY KEY,
    role                 text        NOT NULL CHECK (role IN ('host', 'site', 'installer')),
    machine_id           text REFERENCES machines,
    site                 text        NOT NULL DEFAULT '',
    version              text        NOT NULL DEFAULT '',
    capabilities         text[]      NOT NULL DEFAULT '{}',
    simulated            boolean     NOT NULL DEFAULT false,
    locked               boolean     NOT NULL DEFAULT false,
    -- The newest memory, boot and hardware that a session has shown.
    state_id             text        NOT NULL DEFAULT '',
    boot_id              text        NOT NULL DEFAULT '',
    hardware_fingerprint text        NOT NULL DEFAULT '',
    epoch                bigint      NOT NULL DEFAULT 0,
    created_at           timestamptz NOT NULL
);
CREATE INDEX agents_by_machine ON agents (machine_id);
CREATE INDEX agents_by_site ON agents (site) WHERE role = 'site';

-- One row per memory (state_id) of an agent: the highest grant and event numbers seen under it.
CREATE TABLE agent_states (
    agent_id       text        NOT NULL REFERENCES agents,
    state_id       text        NOT NULL,
    last_grant_seq bigint      NOT NULL DEFAULT 0,
    last_event_seq bigint      NOT NULL DEFAULT 0,
    first_seen_at  timestamptz NOT NULL,
    PRIMARY KEY (agent_id, state_id)
);

-- Boots in the order in which they were first seen: an old one that comes back proves a clone.
CREATE TABLE agent_boots (
    agent_id      text        NOT NULL REFERENCES agents,
    boot_id       text        NOT NULL,
    boot_number   bigint      NOT NULL,
    first_seen_at timestamptz NOT NULL,
    PRIMARY KEY (agent_id, boot_id)
);

CREATE TABLE agent_certs (
    -- SHA-256 of the certificate's DER, lower hex.
    fingerprint       text PRIMARY KEY,
    agent_id          text        NOT NULL REFERENCES agents,
    serial_number     text        NOT NULL,
    public_key_digest bytea       NOT NULL,
    chain_pem         bytea       NOT NULL,
    not_before        timestamptz NOT NULL,
    not_after         timestamptz NOT NULL,
    issued_at         timestamptz NOT NULL,
    first_used_at     timestamptz,
    revoked_at        timestamptz,
    -- Set when a newer certificate of the same agent has opened a session.
    replaced_at       timestamptz
);
CREATE INDEX agent_certs_by_agent ON agent_certs (agent_id, issued_at DESC);

CREATE TABLE agent_sessions (
    agent_id          text PRIMARY KEY REFERENCES agents,
    session_id        text        NOT NULL,
    epoch             bigint      NOT NULL,
    controller_id     text        NOT NULL,
    fingerprint       text        NOT NULL,
    state_id          text        NOT NULL,
    boot_id           text        NOT NULL,
    started_at        timestamptz NOT NULL,
    last_heartbeat_at timestamptz NOT NULL,
    -- NULL while live.
    ended_at          timestamptz
);
CREATE INDEX agent_sessions_live ON agent_sessions (controller_id) WHERE ended_at IS NULL;
CREATE INDEX agent_sessions_beat ON agent_sessions (last_heartbeat_at) WHERE ended_at IS NULL;

CREATE TABLE bootstrap_tokens (
    token_id               text PRIMARY KEY,
    secret_hash            bytea       NOT NULL,
    role                   text        NOT NULL CHECK (role IN ('host', 'site', 'installer')),
    machine_id             text REFERENCES machines,
    site                   text        NOT NULL DEFAULT '',
    bound_region           text        NOT NULL DEFAULT '',
    bound_provider         text        NOT NULL DEFAULT '',
    bound_mac              macaddr,
    bound_serial           text        NOT NULL DEFAULT '',
    created_at             timestamptz NOT NULL,
    expires_at             timestamptz NOT NULL,
    used_at                timestamptz,
    used_public_key_digest bytea,
    used_fingerprint       text REFERENCES agent_certs,
    used_by_agent_id       text REFERENCES agents,
    revoked_at             timestamptz
);
CREATE INDEX bootstrap_tokens_newest ON bootstrap_tokens (created_at DESC, token_id DESC);

CREATE TABLE commands (
    -- The key of one attempt of one step, made when the attempt is decided.
    command_id          text PRIMARY KEY,
    operation_id        text        NOT NULL REFERENCES operations,
    target_id           text        NOT NULL REFERENCES machines,
    step_idx            integer     NOT NULL,
    step_name           text        NOT NULL,
    attempt             integer     NOT NULL,
    kind                text        NOT NULL,
    -- Serialized fleet.v1.CommandSpec and its SHA-256.
    spec                bytea       NOT NULL,
    digest              bytea       NOT NULL,
    executor_id         text        NOT NULL REFERENCES agents,
    executor_state_id   text        NOT NULL DEFAULT '',
    state               text        NOT NULL CHECK (state IN
        ('QUEUED', 'SENT', 'ACKED', 'GRANTED', 'DONE', 'CANCELED', 'EXPIRED', 'UNKNOWN')),
    outcome             text        NOT NULL DEFAULT '',
    reason              text        NOT NULL DEFAULT '',
    message             text        NOT NULL DEFAULT '',
    evidence            jsonb       NOT NULL DEFAULT '{}',
    boot_id_before      text        NOT NULL DEFAULT '',
    grant_seq           bigint      NOT NULL DEFAULT 0,
    deadline            timestamptz NOT NULL,
    created_at          timestamptz NOT NULL,
    sent_at             timestamptz,
    acked_at            timestamptz,
    granted_at          timestamptz,
    -- The executor says that it is done; the world has not confirmed it yet.
    claimed_at          timestamptz,
    finished_at         timestamptz,
    settled_by          text        NOT NULL DEFAULT '',
    UNIQUE (operation_id, step_idx, attempt)
);
-- Attempts never overlap, on no account.
CREATE UNIQUE INDEX commands_one_unsettled ON commands (target_id)
    WHERE state IN ('QUEUED', 'SENT', 'ACKED', 'GRANTED');
CREATE INDEX commands_unsettled_of_executor ON commands (executor_id)
    WHERE state IN ('QUEUED', 'SENT', 'ACKED', 'GRANTED');
CREATE INDEX commands_of_target ON commands (target_id, created_at DESC);

CREATE TABLE operation_events (
    operation_id text        NOT NULL REFERENCES operations,
    -- Given under the operation's row lock: no gaps.
    seq          bigint      NOT NULL,
    target_id    text        NOT NULL,
    change_xid   xid8        NOT NULL DEFAULT pg_current_xact_id(),
    ts           timestamptz NOT NULL,
    kind         text        NOT NULL,
    step         text        NOT NULL DEFAULT '',
    message      text        NOT NULL DEFAULT '',
    -- Serialized baremetal.v1.Operation as it was right after the change.
    snapshot     bytea       NOT NULL,
    PRIMARY KEY (operation_id, seq)
);
CREATE INDEX operation_events_feed ON operation_events (change_xid, operation_id, seq);

CREATE TABLE operation_logs (
    operation_id text        NOT NULL REFERENCES operations,
    seq          bigint      NOT NULL,
    ts           timestamptz NOT NULL,
    stream       text        NOT NULL,
    step         text        NOT NULL DEFAULT '',
    data         bytea       NOT NULL,
    PRIMARY KEY (operation_id, seq)
);

CREATE TABLE inventories (
    machine_id  text        NOT NULL REFERENCES machines,
    reported_at timestamptz NOT NULL,
    agent_id    text        NOT NULL,
    hash        text        NOT NULL,
    document    jsonb       NOT NULL,
    simulated   boolean     NOT NULL DEFAULT false,
    PRIMARY KEY (machine_id, reported_at, hash)
);

CREATE TABLE audit_log (
    audit_id     bigserial PRIMARY KEY,
    ts           timestamptz NOT NULL,
    -- An opaque name: of a bearer token, an agent, or the system.
    actor        text        NOT NULL,
    verb         text        NOT NULL,
    target_id    text        NOT NULL DEFAULT '',
    request_id   text        NOT NULL DEFAULT '',
    operation_id text        NOT NULL DEFAULT '',
    -- The only column that may hold personal data.
    event_data   jsonb       NOT NULL DEFAULT '{}'
);
CREATE INDEX audit_log_of_target ON audit_log (target_id, audit_id DESC);

CREATE TABLE node_state_log (
    id           bigserial PRIMARY KEY,
    machine_id   text        NOT NULL REFERENCES machines,
    from_state   text        NOT NULL,
    to_state     text        NOT NULL,
    triggered_by text        NOT NULL CHECK (triggered_by IN ('admin', 'system', 'workflow', 'node_report')),
    user_id      text        NOT NULL DEFAULT '',
    -- Where the free text of the change is kept.
    audit_id     bigint REFERENCES audit_log,
    metadata     jsonb       NOT NULL DEFAULT '{}',
    created_at   timestamptz NOT NULL
);
CREATE INDEX node_state_log_of_machine ON node_state_log (machine_id, id DESC);
