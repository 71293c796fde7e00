DROP TRIGGER machines_insert_renews_site ON machines;
DROP TRIGGER machines_update_renews_site ON machines;
DROP TABLE bmc_credentials, images, discovered_machines, site_leases, boot_assignments;
ALTER TABLE bootstrap_tokens DROP COLUMN operation_id, DROP COLUMN command_id;
ALTER TABLE agents DROP COLUMN operation_id, DROP COLUMN os_image_digest;
ALTER TABLE machines DROP COLUMN power_state, DROP COLUMN power_state_at, DROP COLUMN boot_mode;
ALTER TABLE sites DROP COLUMN segments, DROP COLUMN revision, DROP COLUMN applied_revision, DROP COLUMN applied_at,
    DROP COLUMN agent_id, DROP COLUMN observations, DROP COLUMN boot_addresses;
DROP FUNCTION machine_renews_site, every_site_renewed, renew_site;
