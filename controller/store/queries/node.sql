-- name: SetInstall :exec
-- How the installation of a node stands, besides its state.
UPDATE machines SET install_attempts = @install_attempts, last_install_error = @last_install_error, failed_plan_id = @failed_plan_id
WHERE machine_id = @machine_id;

-- name: SetNodePlan :exec
UPDATE machines SET plan_id = sqlc.narg(plan_id) WHERE machine_id = @machine_id;

-- name: LockMachineByMac :one
SELECT m.* FROM machines m JOIN machine_macs mm ON mm.machine_id = m.machine_id
WHERE mm.mac = CAST(@mac::text AS macaddr) FOR UPDATE OF m;

-- name: EverActive :one
SELECT EXISTS (SELECT 1 FROM node_state_log WHERE machine_id = @machine_id AND to_state = 'active');

-- name: UpsertNodeGroup :one
INSERT INTO node_groups (node_group, auto_promote, updated_at) VALUES (@node_group, @auto_promote, @now)
ON CONFLICT (node_group) DO UPDATE SET auto_promote = excluded.auto_promote, updated_at = excluded.updated_at
RETURNING *;

-- name: GetNodeGroup :one
SELECT * FROM node_groups WHERE node_group = @node_group;

-- name: ListNodeGroups :many
-- A group exists when it was set, or when a machine names it.
SELECT g.name::text AS node_group, coalesce(n.auto_promote, false)::boolean AS auto_promote, n.updated_at,
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
ON CONFLICT (machine_id) DO UPDATE SET
    mac = excluded.mac, ip_address = excluded.ip_address, hostname = excluded.hostname, vendor = excluded.vendor,
    model = excluded.model, serial_number = excluded.serial_number, system_uuid = excluded.system_uuid,
    installation_status = excluded.installation_status, installation_percent = excluded.installation_percent,
    reported_at = excluded.reported_at;

-- name: NodeReportsOf :many
SELECT machine_id, mac::text AS mac, ip_address, hostname, vendor, model, serial_number, system_uuid, installation_status,
       installation_percent, reported_at
FROM node_reports WHERE machine_id = ANY(@machine_ids::text[]);

-- name: NodePlansOf :many
SELECT machine_id, coalesce(plan_id, '')::text AS plan_id FROM machines WHERE machine_id = ANY(@machine_ids::text[]);

-- name: GetDiscovered :one
SELECT d.site, d.mac::text AS mac, d.segment, d.address, d.arch, d.vendor FROM discovered_machines d
WHERE d.site = @site AND d.mac = CAST(@mac::text AS macaddr);
