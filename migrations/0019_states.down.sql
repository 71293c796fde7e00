ALTER TABLE node_groups DROP COLUMN explicit_promotion;
DROP TRIGGER machine_provisioned ON machine_conditions;
DROP FUNCTION machine_provisioned();
DROP TRIGGER workflows_hold ON workflows;
DROP FUNCTION workflows_hold();
DROP TABLE machine_causes;
ALTER TABLE machines DROP COLUMN active_workflow_id, DROP COLUMN first_provisioned_at;
