-- Bearer tokens beside those of the controllers' files.
CREATE TABLE api_tokens (
    token_id     text        PRIMARY KEY,
    name         text        NOT NULL,
    scope        text        NOT NULL CHECK (scope IN ('read', 'operate', 'report', 'admin')),
    -- SHA-256 of the secret, which has 256 random bits.
    hash         bytea       NOT NULL UNIQUE,
    created_at   timestamptz NOT NULL,
    created_by   text        NOT NULL,
    expires_at   timestamptz NOT NULL,
    last_used_at timestamptz,
    revoked_at   timestamptz
);
CREATE UNIQUE INDEX api_tokens_name ON api_tokens (name) WHERE revoked_at IS NULL;
CREATE INDEX api_tokens_in_force ON api_tokens (expires_at) WHERE revoked_at IS NULL;

-- One row, whose lock puts changes in order: controllers read the tokens again when the number has changed.
CREATE TABLE api_tokens_version (
    one     boolean PRIMARY KEY DEFAULT true CHECK (one),
    version bigint  NOT NULL DEFAULT 0
);
INSERT INTO api_tokens_version DEFAULT VALUES;

-- Who did what, by time and by actor.
CREATE INDEX audit_log_by_actor ON audit_log (actor, audit_id DESC);
CREATE INDEX audit_log_by_time ON audit_log (ts);
