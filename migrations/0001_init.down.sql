DROP TABLE node_state_log, audit_log, inventories, operation_logs, operation_events, commands, bootstrap_tokens,
    agent_sessions, agent_certs, agent_boots, agent_states, agents, step_progress, operation_steps, machine_conditions,
    machine_macs CASCADE;
ALTER TABLE machines DROP CONSTRAINT machines_current_operation;
DROP TABLE operations, plans, machines, sites, controllers, cluster_state;
DROP FUNCTION operations_final(), machine_child_changed(), refuse_delete(), machines_stamp(), oldest_open_transaction();
