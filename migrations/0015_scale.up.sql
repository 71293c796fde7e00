-- What keeps calls and the controller's own work as fast with a million machines as with a thousand.

-- Few machines are in one of the phases or node states that anybody looks for. Walks go by machine_id.
CREATE INDEX machines_by_phase ON machines (phase, machine_id) WHERE deleted_at IS NULL;
CREATE INDEX machines_by_node_state ON machines (node_state, machine_id) WHERE deleted_at IS NULL;
CREATE INDEX machines_busy ON machines (machine_id) WHERE current_operation_id IS NOT NULL;

-- Which machines a condition is true of.
CREATE INDEX machine_conditions_true ON machine_conditions (type, machine_id) WHERE status;

-- Which sessions have fallen silent lately, whether they were ended or not, which were opened lately, and which one a
-- heartbeat is of.
DROP INDEX agent_sessions_beat;
CREATE INDEX agent_sessions_beat ON agent_sessions (last_heartbeat_at);
CREATE INDEX agent_sessions_started ON agent_sessions (started_at) WHERE ended_at IS NULL;
CREATE INDEX agent_sessions_by_session ON agent_sessions (session_id);

-- Operations that ended in a way that few do.
CREATE INDEX operations_by_phase ON operations (phase, created_at DESC, operation_id DESC) WHERE phase <> 'SUCCEEDED';
