-- Scripts that are run on machines over SSH. Their bytes are blobs, as those of images are.
CREATE TABLE scripts (
    script_ref  text PRIMARY KEY,
    sha256      text        NOT NULL,
    size_bytes  bigint      NOT NULL,
    -- Absolute path of the program that runs it.
    interpreter text        NOT NULL,
    destructive boolean     NOT NULL,
    created_at  timestamptz NOT NULL
);

CREATE INDEX scripts_sha256 ON scripts (sha256);

CREATE TABLE ssh_credentials (
    credentials_ref text PRIMARY KEY,
    -- User name and private key, sealed with the controller's key.
    sealed          bytea       NOT NULL,
    version         bigint      NOT NULL DEFAULT 1,
    updated_at      timestamptz NOT NULL
);
