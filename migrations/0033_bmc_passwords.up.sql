-- Passwords of the BMCs of single machines, in place of those of the credentials that the machine names.
CREATE TABLE bmc_passwords (
    machine_id      text        NOT NULL REFERENCES machines (machine_id) ON DELETE CASCADE,
    -- The credentials that it stands for. It is not used while the machine names others.
    credentials_ref text        NOT NULL,
    -- User name and password, sealed; null until the BMC has taken the first one.
    sealed          bytea,
    -- Of no other password of any machine; 0 as long as there is none.
    version         bigint      NOT NULL DEFAULT 0,
    -- A new one that the BMC may have been given. It stays until it is known what the BMC takes.
    pending         bytea,
    pending_version bigint      NOT NULL DEFAULT 0,
    -- The command that was given the pending one last, and the one whose password is in force.
    pending_command text        NOT NULL DEFAULT '',
    settled_command text        NOT NULL DEFAULT '',
    changed_at      timestamptz NOT NULL,
    PRIMARY KEY (machine_id, credentials_ref)
);
CREATE INDEX bmc_passwords_by_credentials ON bmc_passwords (credentials_ref);
CREATE SEQUENCE bmc_password_versions;
