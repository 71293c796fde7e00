-- Machines whose system was installed without an agent. probe_ip is where its phone-home came from.
ALTER TABLE machines ADD COLUMN agentless boolean NOT NULL DEFAULT false;
ALTER TABLE machines ADD COLUMN probe_ip text NOT NULL DEFAULT '';
CREATE INDEX machines_agentless ON machines (site) WHERE agentless;

-- The systems that operations under way wait to hear of: by the digest of a one-time secret, which only the new system
-- has. said is what it has said of itself, as evidence; a row goes with the end of its operation.
CREATE TABLE phone_homes (
    operation_id  text PRIMARY KEY,
    machine_id    text        NOT NULL REFERENCES machines,
    command_id    text        NOT NULL,
    secret_sha256 bytea       NOT NULL UNIQUE CHECK (length(secret_sha256) = 32),
    said          jsonb       NOT NULL DEFAULT '{}',
    issued_at     timestamptz NOT NULL
);
CREATE INDEX phone_homes_by_machine ON phone_homes (machine_id);
