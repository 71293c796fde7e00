-- Policies that demand a second person's approval of work, whatever the caller asks for.
CREATE TABLE approval_policies (
    policy_id  bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name       text        NOT NULL,
    harm       text        NOT NULL CHECK (harm IN ('DESTROYS')),
    selection  text        NOT NULL,
    -- The selection as in_selections reads it.
    terms      jsonb       NOT NULL,
    machines   integer     NOT NULL CHECK (machines >= 0),
    set_by     text        NOT NULL,
    updated_at timestamptz NOT NULL,
    version    bigint      NOT NULL DEFAULT 1,
    -- A policy that was replaced or removed holds on for the identity that has done so, until a time. Empty: it holds for all.
    held_to    text        NOT NULL DEFAULT '',
    held_until timestamptz
);
CREATE UNIQUE INDEX approval_policies_by_name ON approval_policies (name) WHERE held_to = '';

-- Destructive work that began without approval, by the root identity that has asked for it. Kept while it counts, and only
-- while there are policies.
CREATE TABLE unapproved_work (
    work_id         bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    identity        text        NOT NULL,
    machine_id      text        NOT NULL REFERENCES machines,
    at              timestamptz NOT NULL,
    -- The machine as it was then: a change of its labels or its place takes it out of no policy.
    labels          jsonb       NOT NULL,
    spec            jsonb       NOT NULL,
    os_image_digest text        NOT NULL
);
CREATE INDEX unapproved_work_by_identity ON unapproved_work (identity, at);
CREATE INDEX unapproved_work_by_time ON unapproved_work (at);

ALTER TABLE rollouts ADD COLUMN approval_policies text[] NOT NULL DEFAULT '{}';
