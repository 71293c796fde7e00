DROP INDEX machines_out_of_service;
DROP INDEX machines_in_work;
ALTER TABLE machines DROP COLUMN retiring;
DROP TRIGGER node_state_log_keep ON node_state_log;
DROP TRIGGER machines_node_move ON machines;
DROP TRIGGER node_state_log_told ON node_state_log;
DROP FUNCTION log_node_move, tell_node_move, keep_node_log;
