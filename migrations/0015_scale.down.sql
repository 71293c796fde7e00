DROP INDEX operations_by_phase;
DROP INDEX agent_sessions_by_session;
DROP INDEX agent_sessions_started;
DROP INDEX agent_sessions_beat;
CREATE INDEX agent_sessions_beat ON agent_sessions (last_heartbeat_at) WHERE ended_at IS NULL;
DROP INDEX machine_conditions_true;
DROP INDEX machines_busy;
DROP INDEX machines_by_node_state;
DROP INDEX machines_by_phase;
