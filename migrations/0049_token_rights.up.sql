-- A token is good for a selection of machines, and worth what its maker is.
ALTER TABLE api_tokens ADD COLUMN selection text NOT NULL DEFAULT '';
-- The token that has made it; it is revoked with that one. Empty where a person or a token of the file did.
ALTER TABLE api_tokens ADD COLUMN parent_id text NOT NULL DEFAULT '';
-- The hash of a token with a selection. A controller of before knows no selections, and finds no token by hash.
ALTER TABLE api_tokens ADD COLUMN narrow_hash bytea UNIQUE;
CREATE INDEX api_tokens_parent ON api_tokens (parent_id) WHERE revoked_at IS NULL AND parent_id <> '';
CREATE INDEX api_tokens_maker ON api_tokens (created_by_identity) WHERE revoked_at IS NULL;

-- People, as the newest token of the provider names them: what their own tokens are worth follows from their groups.
CREATE TABLE people (
    identity   text        PRIMARY KEY,
    issuer     text        NOT NULL,
    subject    text        NOT NULL,
    name       text        NOT NULL,
    groups     text[]      NOT NULL,
    -- When the provider has issued that token: a sign-on, or a renewal of one.
    issued_at  timestamptz NOT NULL
);
