-- What is counted and not chained yet goes into the audit log now.
INSERT INTO audit_log (ts, actor, verb, target_id, event_data)
SELECT r.minute, r.actor, 'REFUSED', 'refusals', jsonb_strip_nulls(jsonb_build_object('method', r.method, 'count', r.count::text,
    'source_address', r.address, 'machine_id', nullif(r.machine_id, '')))
FROM refusal_counts r ORDER BY r.minute, r.actor, r.address, r.method;
SET CONSTRAINTS ALL IMMEDIATE;

DROP FUNCTION timeline_restored;
DROP TRIGGER machines_chained ON machines;
DROP TRIGGER machine_conditions_chained ON machine_conditions;
DROP TRIGGER operations_chained ON operations;
DROP TRIGGER operation_steps_chained ON operation_steps;
DROP TRIGGER commands_chained ON commands;
DROP TRIGGER workflows_chained ON workflows;
DROP TRIGGER operation_steps_keep ON operation_steps;
DROP TRIGGER commands_keep ON commands;
DROP TRIGGER machines_keep_all ON machines;
DROP TRIGGER machine_conditions_keep_all ON machine_conditions;
DROP TRIGGER operations_keep_all ON operations;
DROP TRIGGER operation_steps_keep_all ON operation_steps;
DROP TRIGGER commands_keep_all ON commands;
DROP TRIGGER workflows_keep_all ON workflows;
DROP TRIGGER node_state_log_keep_all ON node_state_log;
DROP TRIGGER audit_log_keep ON audit_log;
DROP TRIGGER audit_log_keep_all ON audit_log;
DROP FUNCTION keep_audit_row;
CREATE OR REPLACE FUNCTION timeline_of_audits() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    changes text;
BEGIN
    SELECT string_agg(concat(E'\x1e', (SELECT m.machine_id FROM machines m WHERE m.machine_id = n.target_id), E'\x1f',
        json_build_array('audit', n.actor, n.operation_id, '', json_strip_nulls(json_build_object(
            'audit_id', n.audit_id::text, 'verb', n.verb, 'target', n.target_id, 'request_id', nullif(n.request_id, ''),
            'at', ((extract(epoch FROM n.ts) * 1000000)::bigint)::text,
            'data_digest', encode(sha256(n.salt || convert_to(n.event_data::text, 'UTF8')), 'hex'))))), '')
    INTO changes FROM rows_after n;
    IF changes IS NOT NULL THEN
        changes := timeline_add(changes);
    END IF;
    RETURN NULL;
END $$;
DROP INDEX audit_log_scrubs;
ALTER TABLE audit_log DROP COLUMN scrub_through, DROP COLUMN scrub_verb;
DROP FUNCTION count_refusals;
DROP TABLE refusal_counts, refusal_writers, refusal_chain;
