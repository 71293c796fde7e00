-- Triggers watch row by row again, and foreign keys are checked.
DROP TRIGGER machines_webhooks_insert ON machines;
DROP TRIGGER machines_webhooks_update ON machines;
DROP TRIGGER machines_timeline_insert ON machines;
DROP TRIGGER machines_timeline_update ON machines;
DROP TRIGGER operations_timeline_insert ON operations;
DROP TRIGGER operations_timeline_update ON operations;
DROP TRIGGER operation_steps_timeline ON operation_steps;
DROP TRIGGER commands_timeline_insert ON commands;
DROP TRIGGER commands_timeline_update ON commands;
DROP TRIGGER audit_log_timeline ON audit_log;
DROP FUNCTION webhook_note_machines, timeline_of_machines, timeline_of_operations, timeline_of_steps, timeline_of_commands,
    timeline_of_audits, timeline_add;
DROP TABLE timeline_due;

CREATE TRIGGER machines_webhooks AFTER INSERT OR UPDATE ON machines
    FOR EACH ROW EXECUTE FUNCTION webhook_note_machine();
CREATE TRIGGER machines_timeline AFTER INSERT OR UPDATE OF phase, node_state, boot_mode, install_attempts, spec, labels,
    current_operation_id, unresolved_command_id, agent_id, boot_id, os_image_digest, plan_id, power_state, deleted_at ON machines
    FOR EACH ROW EXECUTE FUNCTION timeline_of_machine();
CREATE CONSTRAINT TRIGGER machines_timeline_commit AFTER INSERT OR UPDATE OF phase, node_state, boot_mode, install_attempts, spec, labels,
    current_operation_id, unresolved_command_id, agent_id, boot_id, os_image_digest, plan_id, power_state, deleted_at ON machines
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION timeline_commit();
CREATE CONSTRAINT TRIGGER operations_timeline_commit AFTER INSERT OR UPDATE ON operations
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION timeline_commit();
CREATE CONSTRAINT TRIGGER operation_steps_timeline_commit AFTER UPDATE ON operation_steps
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION timeline_commit();
CREATE CONSTRAINT TRIGGER commands_timeline_commit AFTER INSERT OR UPDATE ON commands
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION timeline_commit();
CREATE CONSTRAINT TRIGGER audit_log_timeline_commit AFTER INSERT ON audit_log
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION timeline_commit();
CREATE TRIGGER operations_timeline AFTER INSERT OR UPDATE ON operations FOR EACH ROW EXECUTE FUNCTION timeline_of_operation();
CREATE TRIGGER operation_steps_timeline AFTER UPDATE ON operation_steps FOR EACH ROW EXECUTE FUNCTION timeline_of_step();
CREATE TRIGGER commands_timeline AFTER INSERT OR UPDATE ON commands FOR EACH ROW EXECUTE FUNCTION timeline_of_command();
CREATE TRIGGER audit_log_timeline AFTER INSERT ON audit_log FOR EACH ROW EXECUTE FUNCTION timeline_of_audit();

CREATE OR REPLACE FUNCTION timeline_write() RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    noted   text := current_setting('ingot.timeline', true);
    machine text := substr(split_part(noted, E'\x1f', 1), 2);
    changes text := replace(noted, concat(E'\x1e', machine, E'\x1f'), ', ');
    e       record;
BEGIN
    IF set_config('ingot.timeline', '', true) = '' AND strpos(changes, E'\x1e') = 0 THEN
        RETURN timeline_enter(machine, concat('[', substr(changes, 3), ']'));
    END IF;
    FOR e IN
        SELECT split_part(c.change, E'\x1f', 1) AS machine, string_agg(split_part(c.change, E'\x1f', 2), ', ' ORDER BY c.n) AS changes
        FROM string_to_table(substr(noted, 2), E'\x1e') WITH ORDINALITY c(change, n)
        GROUP BY 1 ORDER BY timeline_lane(split_part(c.change, E'\x1f', 1)), 1
    LOOP
        machine := timeline_enter(e.machine, concat('[', e.changes, ']'));
    END LOOP;
    RETURN '';
END $$;

DROP TRIGGER plans_keep ON plans;
DROP TRIGGER agents_keep ON agents;
ALTER TABLE operations ADD FOREIGN KEY (target_id) REFERENCES machines, ADD FOREIGN KEY (plan_id) REFERENCES plans;
ALTER TABLE operation_steps ADD FOREIGN KEY (operation_id) REFERENCES operations;
ALTER TABLE operation_events ADD FOREIGN KEY (operation_id) REFERENCES operations;
ALTER TABLE commands ADD FOREIGN KEY (operation_id) REFERENCES operations, ADD FOREIGN KEY (target_id) REFERENCES machines,
    ADD FOREIGN KEY (executor_id) REFERENCES agents;
