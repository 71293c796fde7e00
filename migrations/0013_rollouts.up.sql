-- One piece of work on many machines, wave after wave.
CREATE TABLE rollouts (
    rollout_id   text PRIMARY KEY,
    request_id   text        NOT NULL UNIQUE,
    -- baremetal.v1.RolloutSpec, its defaults filled in.
    spec         bytea       NOT NULL,
    -- Type and plan of the operations, as the spec resolves to.
    type         text        NOT NULL,
    plan_id      text        NOT NULL,
    destructive  boolean     NOT NULL,
    digest       text        NOT NULL,
    state        text        NOT NULL CHECK (state IN ('AWAITING_APPROVAL', 'RUNNING', 'PAUSED', 'STOPPING', 'SUCCEEDED', 'FAILED', 'CANCELED')),
    -- Who has paused or stopped it: OPERATOR or GATE.
    cause        text        NOT NULL DEFAULT '' CHECK (cause IN ('', 'OPERATOR', 'GATE')),
    wait_reason  text        NOT NULL DEFAULT '',
    message      text        NOT NULL DEFAULT '',
    -- Operations under way are asked to stop as well.
    cancel_operations boolean NOT NULL DEFAULT false,
    -- The wave under way, from 1.
    wave         integer     NOT NULL DEFAULT 0,
    waves        integer     NOT NULL,
    -- Failures that a resume has acknowledged: of all, and of the wave under way.
    acked        integer     NOT NULL DEFAULT 0,
    acked_wave   integer     NOT NULL DEFAULT 0,
    soak_until   timestamptz,
    created_by   text        NOT NULL,
    approved_by  text        NOT NULL DEFAULT '',
    created_at   timestamptz NOT NULL,
    updated_at   timestamptz NOT NULL,
    approved_at  timestamptz,
    finished_at  timestamptz,
    -- When to look again; NULL while only a person can move it.
    wake_at      timestamptz,
    version      bigint      NOT NULL DEFAULT 1
);
CREATE INDEX rollouts_due ON rollouts (wake_at) WHERE wake_at IS NOT NULL;
CREATE INDEX rollouts_newest ON rollouts (created_at DESC, rollout_id DESC);

CREATE TABLE rollout_machines (
    rollout_id   text        NOT NULL REFERENCES rollouts,
    -- The order in which they begin, from 1.
    position     integer     NOT NULL,
    machine_id   text        NOT NULL REFERENCES machines,
    -- 0 of one that was refused from the beginning.
    wave         integer     NOT NULL,
    domain       text        NOT NULL,
    -- STARTING: claimed, its operation is about to be made.
    state        text        NOT NULL CHECK (state IN ('PENDING', 'SKIPPED', 'STARTING', 'RUNNING', 'SUCCEEDED', 'FAILED', 'CANCELED')),
    operation_id text REFERENCES operations,
    reason       text        NOT NULL DEFAULT '',
    message      text        NOT NULL DEFAULT '',
    started_at   timestamptz,
    finished_at  timestamptz,
    PRIMARY KEY (rollout_id, position),
    UNIQUE (rollout_id, machine_id)
);
CREATE INDEX rollout_machines_active ON rollout_machines (rollout_id) WHERE state IN ('STARTING', 'RUNNING');
CREATE INDEX rollout_machines_pending ON rollout_machines (rollout_id, wave, position) WHERE state = 'PENDING';
CREATE INDEX rollout_machines_waiting ON rollout_machines (machine_id) WHERE state IN ('PENDING', 'STARTING', 'RUNNING');
CREATE INDEX rollout_machines_operation ON rollout_machines (operation_id) WHERE operation_id IS NOT NULL;
