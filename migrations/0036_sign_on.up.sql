-- Roles of people who sign on with a provider, and their sessions.
CREATE TABLE role_bindings (
    binding_id   text        PRIMARY KEY,
    role         text        NOT NULL CHECK (role IN ('viewer', 'operator', 'approver', 'admin')),
    member_kind  text        NOT NULL CHECK (member_kind IN ('group', 'subject')),
    member       text        NOT NULL CHECK (member <> ''),
    -- A filter of machines; empty is all of them.
    selection    text        NOT NULL,
    created_at   timestamptz NOT NULL,
    created_by   text        NOT NULL,
    expires_at   timestamptz,
    UNIQUE (role, member_kind, member, selection)
);

CREATE TABLE sign_on_sessions (
    session_id   text        PRIMARY KEY,
    -- As the provider knows the person, and calls it.
    subject      text        NOT NULL,
    name         text        NOT NULL,
    created_at   timestamptz NOT NULL,
    last_seen_at timestamptz NOT NULL,
    expires_at   timestamptz NOT NULL,
    revoked_at   timestamptz
);
CREATE INDEX sign_on_sessions_by_age ON sign_on_sessions (created_at DESC, session_id DESC);
CREATE INDEX sign_on_sessions_revoked ON sign_on_sessions (revoked_at) WHERE revoked_at IS NOT NULL;

-- What the provider last said of itself and of its keys, so that a controller which starts while the provider is away
-- knows the tokens that are under way.
CREATE TABLE sign_on_providers (
    issuer     text        PRIMARY KEY,
    document   jsonb       NOT NULL,
    keys       jsonb       NOT NULL,
    fetched_at timestamptz NOT NULL
);

-- Who is behind a name: two people of one name are two, and a token is whoever made it.
ALTER TABLE rollouts ADD COLUMN created_by_identity text NOT NULL DEFAULT '';
ALTER TABLE api_tokens ADD COLUMN created_by_identity text NOT NULL DEFAULT '';
