ALTER TABLE provider_observations DROP COLUMN known_system_id;
ALTER TABLE sites DROP COLUMN drift_threshold;
ALTER TABLE node_groups DROP COLUMN health_checks;
DROP INDEX machines_on_their_way_in;
ALTER TABLE machines DROP COLUMN failed_node_plan, DROP COLUMN accepted_drift, DROP COLUMN quarantine_reason, DROP COLUMN quarantined_from;
ALTER TABLE workflows DROP COLUMN unclean, DROP COLUMN failures;
