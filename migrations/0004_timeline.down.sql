DROP TRIGGER audit_log_timeline ON audit_log;
DROP TRIGGER node_state_log_timeline ON node_state_log;
DROP TRIGGER commands_timeline ON commands;
DROP TRIGGER operation_steps_timeline ON operation_steps;
DROP TRIGGER operations_timeline ON operations;
DROP TRIGGER machine_conditions_timeline ON machine_conditions;
DROP TRIGGER machines_timeline ON machines;
DROP FUNCTION timeline_of_audit, timeline_of_node_state, timeline_of_command, timeline_of_step, timeline_of_operation,
    timeline_of_condition, timeline_of_machine, timeline_append;
ALTER TABLE audit_log DROP COLUMN salt;
DROP TABLE machine_timeline;
DROP FUNCTION refuse_rewriting;
