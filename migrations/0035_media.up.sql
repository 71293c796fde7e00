-- The identity level media: a one-time secret in an image that the machine's BMC has attached.
ALTER TABLE machines DROP CONSTRAINT machines_identity_level_check,
    ADD CONSTRAINT machines_identity_level_check CHECK (identity_level IN ('', 'network', 'media', 'tpm')) NOT VALID;
ALTER TABLE sites DROP CONSTRAINT sites_identity_level_check,
    ADD CONSTRAINT sites_identity_level_check CHECK (identity_level IN ('', 'network', 'media', 'tpm'));
ALTER TABLE node_groups DROP CONSTRAINT node_groups_identity_level_check,
    ADD CONSTRAINT node_groups_identity_level_check CHECK (identity_level IN ('', 'network', 'media', 'tpm'));
