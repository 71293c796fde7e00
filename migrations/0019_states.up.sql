-- One answer to "may I use this machine": what the effective state needs besides the machine's row and its conditions.

ALTER TABLE machines
    -- When a verified system was on the machine's disk for the first time. The condition Provisioned says whether one is there now.
    ADD COLUMN first_provisioned_at timestamptz,
    -- The workflow that is pending, running or compensating on the machine; kept by a trigger on workflows.
    ADD COLUMN active_workflow_id   text REFERENCES workflows DEFERRABLE INITIALLY DEFERRED;

-- The causes of the condition NeedsIntervention, which is true while a machine has one. Each has a cure of its own.
CREATE TABLE machine_causes (
    machine_id   text        NOT NULL REFERENCES machines,
    cause        text        NOT NULL,
    -- The plan or the command that the cause is about; empty for most.
    subject      text        NOT NULL DEFAULT '',
    reason       text        NOT NULL,
    message      text        NOT NULL DEFAULT '',
    operation_id text        NOT NULL DEFAULT '',
    since        timestamptz NOT NULL,
    PRIMARY KEY (machine_id, cause, subject)
);

CREATE FUNCTION workflows_hold() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.state IN ('PENDING', 'RUNNING', 'COMPENSATING') THEN
        UPDATE machines SET active_workflow_id = NEW.workflow_id
        WHERE machine_id = NEW.machine_id AND active_workflow_id IS DISTINCT FROM NEW.workflow_id;
    ELSE
        UPDATE machines SET active_workflow_id = NULL
        WHERE machine_id = NEW.machine_id AND active_workflow_id = NEW.workflow_id;
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER workflows_hold AFTER INSERT OR UPDATE OF state ON workflows FOR EACH ROW EXECUTE FUNCTION workflows_hold();

CREATE FUNCTION machine_provisioned() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE machines SET first_provisioned_at = NEW.last_transition
    WHERE machine_id = NEW.machine_id AND first_provisioned_at IS NULL;
    RETURN NEW;
END $$;
CREATE TRIGGER machine_provisioned AFTER INSERT OR UPDATE ON machine_conditions FOR EACH ROW
    WHEN (NEW.type = 'Provisioned' AND NEW.status) EXECUTE FUNCTION machine_provisioned();

SET LOCAL statement_timeout = 0;

-- What is stored already is given its place.
UPDATE machines m SET active_workflow_id = w.workflow_id FROM workflows w
WHERE w.machine_id = m.machine_id AND w.state IN ('PENDING', 'RUNNING', 'COMPENSATING');

UPDATE machines m SET first_provisioned_at = c.last_transition FROM machine_conditions c
WHERE c.machine_id = m.machine_id AND c.type = 'Provisioned' AND c.status;

-- The latest grant of a command that destroys what is on a machine's disks, and how its operation ended.
CREATE TEMPORARY TABLE last_destroyed AS
SELECT DISTINCT ON (c.target_id) c.target_id AS machine_id, c.granted_at, o.phase, o.evidence
FROM commands c JOIN operations o ON o.operation_id = c.operation_id
JOIN operation_steps s ON s.operation_id = c.operation_id AND s.idx = c.step_idx
WHERE c.granted_at IS NOT NULL AND (c.kind IN ('repave', 'erase')
      OR c.kind = 'provider_action' AND s.name ~ '(deploy|release|erase|cleanup-storage)')
ORDER BY c.target_id, c.granted_at DESC;

-- A disk that was begun to be written or erased, and has not been verified since, holds no system that anybody has seen.
UPDATE machine_conditions c SET status = false, reason = 'DiskNotVerified', message = '', last_transition = now()
FROM last_destroyed d
WHERE c.machine_id = d.machine_id AND c.type = 'Provisioned' AND c.status
  AND NOT (d.phase = 'SUCCEEDED' AND (d.evidence ? 'image_digest' OR d.evidence ? 'provider_deployed'));
UPDATE machines m SET os_image_digest = ''
FROM last_destroyed d
WHERE m.machine_id = d.machine_id AND m.os_image_digest <> ''
  AND NOT (d.phase = 'SUCCEEDED' AND (d.evidence ? 'image_digest' OR d.evidence ? 'provider_deployed'));

-- A machine whose own agent reports, and whose disks nobody has touched, runs the system that it was adopted with.
INSERT INTO machine_conditions (machine_id, type, status, reason, message, last_transition)
SELECT m.machine_id, 'Provisioned', true, 'Adopted', '', now() FROM machines m
WHERE m.agent_id IS NOT NULL AND m.deleted_at IS NULL AND m.node_state IN ('active', 'offline')
  AND NOT EXISTS (SELECT 1 FROM last_destroyed d WHERE d.machine_id = m.machine_id)
ON CONFLICT (machine_id, type) DO UPDATE SET status = true, reason = 'Adopted', last_transition = excluded.last_transition
WHERE NOT machine_conditions.status;
DROP TABLE last_destroyed;

INSERT INTO machine_causes (machine_id, cause, reason, message, since)
SELECT m.machine_id, 'QUARANTINED', c.reason, c.message, c.last_transition
FROM machines m JOIN machine_conditions c ON c.machine_id = m.machine_id AND c.type = 'NeedsIntervention' AND c.status
WHERE m.node_state = 'quarantined';

INSERT INTO machine_causes (machine_id, cause, subject, reason, message, operation_id, since)
SELECT m.machine_id, 'OUTCOME_UNKNOWN', m.unresolved_command_id, c.reason, c.message, k.operation_id, c.last_transition
FROM machines m JOIN machine_conditions c ON c.machine_id = m.machine_id AND c.type = 'NeedsIntervention' AND c.status
JOIN commands k ON k.command_id = m.unresolved_command_id;

-- Of all others the failed operation that set the condition says what it was; what nothing says is cured by any work that succeeds.
INSERT INTO machine_causes (machine_id, cause, subject, reason, message, operation_id, since)
SELECT c.machine_id,
       CASE o.type WHEN 'REIMAGE' THEN 'REIMAGE_FAILED' WHEN 'UPGRADE' THEN 'UPGRADE_FAILED' WHEN 'JOIN_CLUSTER' THEN 'JOIN_FAILED'
                   WHEN 'RECONFIGURE' THEN 'RECONFIGURE_FAILED' WHEN 'RUN_PLAN' THEN 'PLAN_FAILED' WHEN 'RMA' THEN 'RMA_FAILED'
                   WHEN 'REBOOT' THEN 'REBOOT_FAILED' WHEN 'NETBOOT' THEN 'NETBOOT_FAILED' WHEN 'ONBOARD' THEN 'WORKFLOW_FAILED'
                   WHEN 'DECOMMISSION' THEN 'WORKFLOW_FAILED' ELSE 'RECORD_FAILED' END,
       CASE o.type WHEN 'RUN_PLAN' THEN o.plan_id ELSE '' END,
       c.reason, c.message, coalesce(o.operation_id, ''), c.last_transition
FROM machine_conditions c
LEFT JOIN LATERAL (SELECT * FROM operations x WHERE x.target_id = c.machine_id AND x.phase = 'FAILED'
                   ORDER BY x.finished_at DESC LIMIT 1) o ON o.error ->> 'code' = c.reason
WHERE c.type = 'NeedsIntervention' AND c.status
  AND NOT EXISTS (SELECT 1 FROM machine_causes k WHERE k.machine_id = c.machine_id);

-- A group may keep a node in installed until somebody says by name that it is good.
ALTER TABLE node_groups ADD COLUMN explicit_promotion boolean NOT NULL DEFAULT false;
