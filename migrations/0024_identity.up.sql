-- How an installer proved which machine it is, and by which key of which TPM.

ALTER TABLE machines
    -- SHA-256 of the public area of the TPM's endorsement key. One key is one machine.
    ADD COLUMN tpm_key_digest   bytea,
    -- Why the key is believed: by its first use, or by its vendor's certificate.
    ADD COLUMN tpm_key_trust    text NOT NULL DEFAULT '' CHECK (tpm_key_trust IN ('', 'first-use', 'vendor')),
    ADD COLUMN tpm_key_at       timestamptz,
    -- What the last RAM system of the machine proved; empty before the first.
    ADD COLUMN identity_level   text NOT NULL DEFAULT '' CHECK (identity_level IN ('', 'network', 'tpm'));
CREATE UNIQUE INDEX machines_by_tpm_key ON machines (tpm_key_digest) WHERE tpm_key_digest IS NOT NULL;

ALTER TABLE agents
    -- Of an installer: what it proved before it was certified.
    ADD COLUMN identity_level text NOT NULL DEFAULT '',
    ADD COLUMN identity_trust text NOT NULL DEFAULT '';

ALTER TABLE boot_assignments
    -- The last system that was refused because it could not prove to be this machine.
    ADD COLUMN impostor_reason  text NOT NULL DEFAULT '',
    ADD COLUMN impostor_message text NOT NULL DEFAULT '',
    ADD COLUMN impostor_at      timestamptz;

-- The least level that installers of a site's or a group's machines must prove.
ALTER TABLE sites ADD COLUMN identity_level text NOT NULL DEFAULT '' CHECK (identity_level IN ('', 'network', 'tpm'));
ALTER TABLE node_groups ADD COLUMN identity_level text NOT NULL DEFAULT '' CHECK (identity_level IN ('', 'network', 'tpm'));
