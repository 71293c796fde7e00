DROP TRIGGER timeline_due_states ON timeline_due;
DROP TRIGGER machines_timeline_states_insert ON machines;
DROP TRIGGER machines_timeline_states_update ON machines;
DROP FUNCTION machine_states_commit, machine_states_due, machine_states_add(xid8);
DROP TABLE machine_states, machine_words;
ALTER TABLE cluster_state DROP COLUMN states_since;
