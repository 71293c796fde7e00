-- What explanations are made of. Nothing here writes.

-- name: WordsAbout :many
-- What people have done to a machine lately, and what they said of it.
SELECT ts, actor, verb, operation_id, event_data FROM audit_log
WHERE target_id = @machine_id ORDER BY audit_id DESC LIMIT 50;

-- name: RecentOperationsOf :many
SELECT * FROM operations WHERE target_id = @machine_id ORDER BY created_at DESC, operation_id DESC LIMIT 20;

-- name: CommandsToExplain :many
SELECT c.*, a.role AS executor_role FROM commands c JOIN agents a ON a.agent_id = c.executor_id
WHERE c.operation_id = @operation_id ORDER BY c.step_idx, c.attempt LIMIT 200;

-- name: LastEventOf :one
SELECT ts, kind, message FROM operation_events WHERE operation_id = @operation_id ORDER BY seq DESC LIMIT 1;

-- name: AgentsToExplain :many
-- Those of the machine and of its site, with their last session and their newest certificate.
SELECT a.agent_id, a.role, a.capabilities, a.simulated, a.locked, a.state_id, a.boot_id, a.operation_id, a.os_image_digest, a.hardware_fingerprint,
       (s.agent_id IS NOT NULL AND s.ended_at IS NULL AND k.lease_until > @now)::boolean AS live,
       s.last_heartbeat_at, s.silent_from, s.ended_at, coalesce(c.not_after, 'epoch')::timestamptz AS not_after, c.revoked_at
FROM agents a
LEFT JOIN agent_silence s ON s.agent_id = a.agent_id
LEFT JOIN controllers k ON k.controller_id = s.controller_id
LEFT JOIN LATERAL (SELECT x.not_after, x.revoked_at FROM agent_certs x WHERE x.agent_id = a.agent_id
                   ORDER BY x.issued_at DESC LIMIT 1) c ON true
WHERE (a.machine_id = @machine_id AND (a.role <> 'installer' OR a.operation_id = @operation_id))
   OR (a.role = 'site' AND a.site = @site)
ORDER BY a.created_at;

-- name: LeasesOfMachine :many
SELECT l.segment, l.mac::text AS mac, host(l.address)::text AS address, l.expires_at
FROM machine_macs mm JOIN site_leases l ON l.mac = mm.mac
WHERE mm.machine_id = @machine_id AND l.site = @site
ORDER BY l.expires_at DESC LIMIT 20;

-- name: StrangersOfSite :many
SELECT d.segment, d.mac::text AS mac, d.last_seen_at FROM discovered_machines d
WHERE d.site = @site AND d.last_seen_at > @seen_after
ORDER BY d.last_seen_at DESC LIMIT 5;

-- name: LiveControllers :one
SELECT count(*) FROM controllers WHERE lease_until > @now;

-- name: ModelOf :one
SELECT coalesce((SELECT i.document #>> '{system,product}' FROM inventories i WHERE i.machine_id = @machine_id
                 ORDER BY i.reported_at DESC LIMIT 1), '')::text AS model;

-- name: StepDurations :many
-- How long the steps of the newest operations took that succeeded, with what their machines have in common.
WITH recent AS MATERIALIZED (
    SELECT o.operation_id, o.target_id FROM operations o ORDER BY o.created_at DESC, o.operation_id DESC LIMIT @newest
), seen AS MATERIALIZED (
    SELECT m.machine_id, m.simulated, coalesce(m.spec ->> 'group', '')::text AS machine_group,
           coalesce((SELECT i.document #>> '{system,product}' FROM inventories i WHERE i.machine_id = m.machine_id
                     ORDER BY i.reported_at DESC LIMIT 1), '')::text AS model
    FROM machines m WHERE m.machine_id IN (SELECT r.target_id FROM recent r)
)
SELECT s.kind, (extract(epoch FROM s.finished_at - s.started_at) * 1000)::bigint AS took_ms, seen.simulated, seen.machine_group, seen.model
FROM recent
JOIN seen ON seen.machine_id = recent.target_id
JOIN operation_steps s ON s.operation_id = recent.operation_id
WHERE s.state = 'SUCCEEDED' AND s.started_at IS NOT NULL AND s.finished_at > s.started_at;

-- name: LongOperations :many
-- Active operations whose current step has run for long, the longest first.
SELECT o.operation_id, o.target_id, s.name, s.kind, s.started_at, m.simulated, coalesce(m.spec ->> 'group', '')::text AS machine_group,
       coalesce((SELECT i.document #>> '{system,product}' FROM inventories i WHERE i.machine_id = m.machine_id
                 ORDER BY i.reported_at DESC LIMIT 1), '')::text AS model
FROM operations o
JOIN operation_steps s ON s.operation_id = o.operation_id AND s.idx = o.current_step
JOIN machines m ON m.machine_id = o.target_id
WHERE o.phase = 'RUNNING' AND s.state = 'RUNNING' AND s.started_at < @started_before
ORDER BY s.started_at LIMIT @page_size;

-- name: NoteOnce :execrows
-- A line of the controller's own in an operation's log, once for each step.
INSERT INTO operation_logs (operation_id, seq, ts, stream, step, data)
SELECT o.operation_id, (SELECT coalesce(max(l.seq), 0) + 1 FROM operation_logs l WHERE l.operation_id = o.operation_id),
       @ts, 'controller', @step, @data
FROM operations o
WHERE o.operation_id = @operation_id
  AND NOT EXISTS (SELECT 1 FROM operation_logs x WHERE x.operation_id = o.operation_id AND x.stream = 'controller' AND x.step = @step);
