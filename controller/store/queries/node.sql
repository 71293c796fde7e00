-- name: SetInstall :exec
-- How the installation of a node stands, besides its state.
UPDATE machines
SET install_attempts = @install_attempts, last_install_error = @last_install_error, failed_plan_id = @failed_plan_id,
    failed_node_plan = CASE WHEN @failed_plan_id = '' THEN '' ELSE @node_plan::text END
WHERE machine_id = @machine_id;

-- name: SetNodePlan :exec
UPDATE machines SET plan_id = sqlc.narg(plan_id) WHERE machine_id = @machine_id;

-- name: LockMachineByMac :one
SELECT m.* FROM machines m JOIN machine_macs mm ON mm.machine_id = m.machine_id
WHERE mm.mac = CAST(@mac::text AS macaddr) FOR UPDATE OF m;

-- name: MachineOfMAC :one
SELECT machine_id FROM machine_macs WHERE mac = CAST(@mac::text AS macaddr);

-- name: UpsertNodeGroup :one
-- Without health checks those that the group has stay.
INSERT INTO node_groups (node_group, auto_promote, explicit_promotion, health_checks, updated_at)
VALUES (@node_group, @auto_promote, @explicit_promotion, coalesce(sqlc.narg(health_checks)::text[], '{reachable,inventory,provider}'), @now)
ON CONFLICT (node_group) DO UPDATE
SET auto_promote = excluded.auto_promote, explicit_promotion = excluded.explicit_promotion, updated_at = excluded.updated_at,
    health_checks = coalesce(sqlc.narg(health_checks)::text[], node_groups.health_checks),
    version = node_groups.version + 1
RETURNING *;

-- name: GetNodeGroup :one
SELECT * FROM node_groups WHERE node_group = @node_group;

-- name: ListNodeGroups :many
-- A group exists when it was set, or when a machine names it.
SELECT g.name::text AS node_group, coalesce(n.auto_promote, false)::boolean AS auto_promote,
       coalesce(n.explicit_promotion, false)::boolean AS explicit_promotion, n.updated_at,
       coalesce(n.identity_level, '')::text AS identity_level,
       coalesce(n.health_checks, '{reachable,inventory,provider}')::text[] AS health_checks,
       coalesce(n.version, 0)::bigint AS version,
       (SELECT count(*) FROM machines m WHERE m.deleted_at IS NULL AND m.spec ->> 'group' = g.name) AS nodes
FROM (SELECT node_group AS name FROM node_groups
      UNION SELECT spec ->> 'group' FROM machines WHERE deleted_at IS NULL AND coalesce(spec ->> 'group', '') <> '') g
LEFT JOIN node_groups n ON n.node_group = g.name
WHERE g.name > @after_name::text ORDER BY g.name LIMIT @page_size;

-- name: UpsertNodeReport :exec
INSERT INTO node_reports (machine_id, mac, ip_address, hostname, vendor, model, serial_number, system_uuid,
                          installation_status, installation_percent, reported_at)
VALUES (@machine_id, CAST(@mac::text AS macaddr), @ip_address, @hostname, @vendor, @model, @serial_number, @system_uuid,
        @installation_status, @installation_percent, @now)
-- What a report does not say stays as an earlier one has said it.
ON CONFLICT (machine_id) DO UPDATE SET
    mac = excluded.mac,
    ip_address = coalesce(nullif(excluded.ip_address, ''), node_reports.ip_address),
    hostname = coalesce(nullif(excluded.hostname, ''), node_reports.hostname),
    vendor = coalesce(nullif(excluded.vendor, ''), node_reports.vendor),
    model = coalesce(nullif(excluded.model, ''), node_reports.model),
    serial_number = coalesce(nullif(excluded.serial_number, ''), node_reports.serial_number),
    system_uuid = coalesce(nullif(excluded.system_uuid, ''), node_reports.system_uuid),
    installation_status = coalesce(nullif(excluded.installation_status, ''), node_reports.installation_status),
    installation_percent = CASE WHEN excluded.installation_status = '' THEN node_reports.installation_percent
                                ELSE excluded.installation_percent END,
    reported_at = excluded.reported_at;

-- name: NodeReportsOf :many
SELECT machine_id, mac::text AS mac, ip_address, hostname, vendor, model, serial_number, system_uuid, installation_status,
       installation_percent, reported_at
FROM node_reports WHERE machine_id = ANY(@machine_ids::text[]);

-- name: NodeRowsOf :many
SELECT * FROM machines WHERE machine_id = ANY(@machine_ids::text[]);

-- name: GetDiscovered :one
SELECT d.site, d.mac::text AS mac, d.segment, d.address, d.arch, d.vendor FROM discovered_machines d
WHERE d.site = @site AND d.mac = CAST(@mac::text AS macaddr);

-- name: GrantedFor :one
-- Whether a command for a step of this kind was ever granted: what the step changes may have been changed.
SELECT EXISTS (SELECT 1 FROM commands c JOIN operation_steps s ON s.operation_id = c.operation_id AND s.idx = c.step_idx
               WHERE c.operation_id = @operation_id AND s.kind = @kind AND c.granted_at IS NOT NULL);

-- name: SetRetiring :exec
UPDATE machines SET retiring = sqlc.narg(retiring) WHERE machine_id = @machine_id;

-- name: OwnerlessNodes :many
-- Nodes that have been, since before a time, in a state that stands for work, while no operation is active on them and no
-- workflow holds them.
SELECT m.machine_id, m.node_state, m.node_state_changed_at FROM machines m
WHERE m.node_state IN ('enrolling', 'installing', 'reprovision', 'deprovisioning', 'migrating', 'draining', 'removing')
  AND m.deleted_at IS NULL AND m.current_operation_id IS NULL AND m.node_state_changed_at <= @changed_before
  AND NOT EXISTS (SELECT 1 FROM workflows w WHERE w.machine_id = m.machine_id AND w.ended_at IS NULL)
ORDER BY m.machine_id LIMIT @page_size;

-- name: StaleConditions :many
-- Machines of which a condition does not follow the node's state that it stands for. What an admin has set or cleared stays.
SELECT m.machine_id FROM machines m
WHERE m.deleted_at IS NULL AND m.node_state IN ('retired', 'removing', 'quarantined')
  AND NOT EXISTS (SELECT 1 FROM machine_conditions c
                  WHERE c.machine_id = m.machine_id AND (c.status OR c.reason = 'SetByAdmin')
                    AND c.type = CASE WHEN m.node_state = 'quarantined' THEN 'NeedsIntervention' ELSE 'Retired' END)
UNION
SELECT m.machine_id FROM machine_conditions c JOIN machines m USING (machine_id)
WHERE c.type = 'Retired' AND c.status AND c.reason = 'NodeState' AND m.deleted_at IS NULL AND m.retiring IS NULL
  AND m.node_state NOT IN ('retired', 'removing', 'deleted')
LIMIT 1000;

-- name: MovedByRequest :one
-- The operation that an admin's move into quarantine has cancelled, by the request that asked for it.
SELECT coalesce(metadata ->> 'operation_id', '')::text AS operation_id FROM node_state_log
WHERE machine_id = @machine_id AND to_state = 'quarantined' AND metadata ->> 'request_id' = @request_id::text
ORDER BY id DESC LIMIT 1;

-- name: NodesOnTheirWayIn :many
-- Nodes whose own agent has a session, which wait for their health checks and for no workflow.
SELECT m.machine_id FROM machines m JOIN agent_sessions s ON s.agent_id = m.agent_id AND s.ended_at IS NULL
WHERE m.node_state IN ('bootstrap_issued', 'enrolling') AND m.agent_id IS NOT NULL AND m.deleted_at IS NULL AND m.machine_id > @after_id::text
  AND NOT EXISTS (SELECT 1 FROM workflows w WHERE w.machine_id = m.machine_id AND w.ended_at IS NULL)
ORDER BY m.machine_id LIMIT @page_size;
