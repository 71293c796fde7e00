ALTER TABLE node_groups DROP COLUMN identity_level;
ALTER TABLE sites DROP COLUMN identity_level;
ALTER TABLE boot_assignments DROP COLUMN impostor_at, DROP COLUMN impostor_message, DROP COLUMN impostor_reason;
ALTER TABLE agents DROP COLUMN identity_trust, DROP COLUMN identity_level;
DROP INDEX machines_by_tpm_key;
ALTER TABLE machines DROP COLUMN identity_level, DROP COLUMN tpm_key_at, DROP COLUMN tpm_key_trust, DROP COLUMN tpm_key_digest;
