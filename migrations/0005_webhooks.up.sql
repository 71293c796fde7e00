-- Webhooks: who is told of which events, and what became of each telling.

CREATE TABLE webhooks (
    webhook_id       text PRIMARY KEY,
    url              text        NOT NULL,
    event_types      text[]      NOT NULL,
    filter           text        NOT NULL DEFAULT '',
    -- Whether event_types take any event of machines: only then are their changes noted.
    wants_machines   boolean     NOT NULL,
    max_concurrency  integer     NOT NULL,
    state            text        NOT NULL CHECK (state IN ('active', 'paused', 'disabled')),
    state_reason     text        NOT NULL DEFAULT '',
    state_changed_at timestamptz NOT NULL,
    -- Since when nothing has succeeded, and how many events in a row were given up.
    failing_since    timestamptz,
    failed_events    integer     NOT NULL DEFAULT 0,
    -- The receiver asked for a pause until then.
    hold_until       timestamptz,
    created_at       timestamptz NOT NULL,
    updated_at       timestamptz NOT NULL
);

CREATE TABLE webhook_secrets (
    webhook_id text        NOT NULL REFERENCES webhooks ON DELETE CASCADE,
    secret_id  text        NOT NULL,
    -- Sealed with the key that lies beside the controller.
    sealed     bytea       NOT NULL,
    created_at timestamptz NOT NULL,
    expires_at timestamptz,
    PRIMARY KEY (webhook_id, secret_id)
);

-- How far the events of operations have been turned into deliveries. Its row lock lets one controller do it at a time.
CREATE TABLE webhook_feed (
    singleton       boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    after_xid       xid8        NOT NULL DEFAULT pg_current_xact_id(),
    after_operation text        NOT NULL DEFAULT '',
    after_seq       bigint      NOT NULL DEFAULT 0
);
INSERT INTO webhook_feed DEFAULT VALUES;

-- Changes of machines that are to be turned into deliveries, written by the transactions that make them. A row goes when
-- its deliveries are there.
CREATE TABLE webhook_outbox (
    change_id  bigserial PRIMARY KEY,
    machine_id text        NOT NULL,
    change_xid xid8        NOT NULL DEFAULT pg_current_xact_id(),
    kind       text        NOT NULL,
    from_value text        NOT NULL DEFAULT '',
    to_value   text        NOT NULL DEFAULT '',
    ts         timestamptz NOT NULL DEFAULT clock_timestamp()
);
-- However often one transaction touches a machine, that is one update.
CREATE UNIQUE INDEX webhook_outbox_updates ON webhook_outbox (machine_id, change_xid) WHERE kind = 'updated';

CREATE FUNCTION webhook_note_machine() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM webhooks WHERE wants_machines AND state = 'active') THEN
        RETURN NULL;
    END IF;
    IF TG_OP = 'INSERT' THEN
        INSERT INTO webhook_outbox (machine_id, kind) VALUES (NEW.machine_id, 'registered');
        RETURN NULL;
    END IF;
    IF NEW.version = OLD.version THEN
        RETURN NULL;
    END IF;
    INSERT INTO webhook_outbox (machine_id, kind) VALUES (NEW.machine_id, 'updated') ON CONFLICT DO NOTHING;
    IF NEW.phase <> OLD.phase THEN
        INSERT INTO webhook_outbox (machine_id, kind, from_value, to_value)
        VALUES (NEW.machine_id, 'phase_changed', OLD.phase, NEW.phase);
    END IF;
    IF NEW.node_state <> OLD.node_state THEN
        INSERT INTO webhook_outbox (machine_id, kind, from_value, to_value)
        VALUES (NEW.machine_id, 'node_state_changed', OLD.node_state, NEW.node_state);
    END IF;
    IF OLD.deleted_at IS NULL AND NEW.deleted_at IS NOT NULL THEN
        INSERT INTO webhook_outbox (machine_id, kind) VALUES (NEW.machine_id, 'deleted');
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER machines_webhooks AFTER INSERT OR UPDATE ON machines
    FOR EACH ROW EXECUTE FUNCTION webhook_note_machine();

CREATE TABLE webhook_deliveries (
    delivery_id     text PRIMARY KEY,
    webhook_id      text        NOT NULL REFERENCES webhooks ON DELETE CASCADE,
    -- One id for all webhooks and all tries.
    event_id        text        NOT NULL,
    event_type      text        NOT NULL,
    subject         text        NOT NULL,
    machine_id      text        NOT NULL DEFAULT '',
    -- What is sent, byte for byte: a CloudEvent in structured JSON.
    body            bytea       NOT NULL,
    state           text        NOT NULL CHECK (state IN ('pending', 'delivered', 'dead')),
    -- Grows when the tries begin anew; with the id it is the key of the job that sends.
    round           integer     NOT NULL DEFAULT 1,
    attempts        integer     NOT NULL DEFAULT 0,
    last_status     integer     NOT NULL DEFAULT 0,
    last_error      text        NOT NULL DEFAULT '',
    last_attempt_at timestamptz,
    -- When it is tried next; NULL at the end, and while the webhook is not active.
    next_at         timestamptz,
    created_at      timestamptz NOT NULL,
    finished_at     timestamptz,
    CHECK ((state = 'pending') = (finished_at IS NULL))
);
CREATE INDEX webhook_deliveries_due ON webhook_deliveries (next_at) WHERE state = 'pending';
CREATE INDEX webhook_deliveries_open ON webhook_deliveries (webhook_id, state) WHERE state <> 'delivered';
CREATE INDEX webhook_deliveries_newest ON webhook_deliveries (created_at DESC, delivery_id DESC);
CREATE INDEX webhook_deliveries_of ON webhook_deliveries (webhook_id, created_at DESC, delivery_id DESC);
CREATE INDEX webhook_deliveries_ended ON webhook_deliveries (finished_at) WHERE state <> 'pending';
