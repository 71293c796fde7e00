UPDATE machines SET identity_level = 'network' WHERE identity_level = 'media';
UPDATE sites SET identity_level = 'tpm' WHERE identity_level = 'media';
UPDATE node_groups SET identity_level = 'tpm' WHERE identity_level = 'media';
ALTER TABLE machines DROP CONSTRAINT machines_identity_level_check,
    ADD CONSTRAINT machines_identity_level_check CHECK (identity_level IN ('', 'network', 'tpm'));
ALTER TABLE sites DROP CONSTRAINT sites_identity_level_check,
    ADD CONSTRAINT sites_identity_level_check CHECK (identity_level IN ('', 'network', 'tpm'));
ALTER TABLE node_groups DROP CONSTRAINT node_groups_identity_level_check,
    ADD CONSTRAINT node_groups_identity_level_check CHECK (identity_level IN ('', 'network', 'tpm'));
