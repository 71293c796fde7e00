-- The history of machines is written by triggers. Here it is read, with what the tables say of the same machine.

-- name: TimelineNewest :many
-- Who did something is what the audit row of the same transaction says, else what the entry itself says. Entries of kind
-- 'changes' hold both.
SELECT t.seq, t.ts, t.tx, t.kind, t.operation_id, t.command_id, t.fields::text AS fields, t.prev_hash, t.hash,
       (CASE WHEN t.kind = 'changes' THEN '' ELSE coalesce((SELECT a.actor FROM machine_timeline a
                 WHERE a.machine_id = t.machine_id AND a.seq BETWEEN t.seq - 64 AND t.seq + 64 AND a.tx = t.tx AND a.kind = 'audit'
                 ORDER BY abs(a.seq - t.seq) LIMIT 1), t.actor) END)::text AS who
FROM machine_timeline t
WHERE t.machine_id = @machine_id AND t.seq <= @from_seq
  AND (sqlc.narg(since)::timestamptz IS NULL OR t.ts >= sqlc.narg(since))
  AND (sqlc.narg(until)::timestamptz IS NULL OR t.ts <= sqlc.narg(until))
ORDER BY t.seq DESC LIMIT @page_size;

-- name: TimelineOldest :many
SELECT t.seq, t.ts, t.tx, t.kind, t.operation_id, t.command_id, t.fields::text AS fields, t.prev_hash, t.hash,
       (CASE WHEN t.kind = 'changes' THEN '' ELSE coalesce((SELECT a.actor FROM machine_timeline a
                 WHERE a.machine_id = t.machine_id AND a.seq BETWEEN t.seq - 64 AND t.seq + 64 AND a.tx = t.tx AND a.kind = 'audit'
                 ORDER BY abs(a.seq - t.seq) LIMIT 1), t.actor) END)::text AS who
FROM machine_timeline t
WHERE t.machine_id = @machine_id AND t.seq >= @from_seq
  AND (sqlc.narg(since)::timestamptz IS NULL OR t.ts >= sqlc.narg(since))
  AND (sqlc.narg(until)::timestamptz IS NULL OR t.ts <= sqlc.narg(until))
ORDER BY t.seq LIMIT @page_size;

-- name: TimelineEntries :many
SELECT machine_id, seq, ts, tx, kind, actor, operation_id, command_id, fields::text AS fields, prev_hash, hash
FROM machine_timeline
WHERE machine_id = @machine_id AND seq > @after_seq
  AND (sqlc.narg(until)::timestamptz IS NULL OR ts <= sqlc.narg(until))
ORDER BY seq LIMIT @page_size;

-- name: TimelineMachines :many
-- Every machine that has a history or should have one, a machine that is gone though its history is there among them. The
-- fleet's own comes first, with an empty name.
WITH RECURSIVE owners AS (
    (SELECT t.machine_id FROM machine_timeline t WHERE t.machine_id > @after_id ORDER BY t.machine_id LIMIT 1)
    UNION ALL
    SELECT (SELECT t.machine_id FROM machine_timeline t WHERE t.machine_id > o.machine_id ORDER BY t.machine_id LIMIT 1)
    FROM owners o WHERE o.machine_id IS NOT NULL
)
SELECT ''::text AS machine_id WHERE @from_start::boolean
UNION ALL
(SELECT u.machine_id FROM (
    (SELECT m.machine_id FROM machines m WHERE m.machine_id > @after_id ORDER BY m.machine_id LIMIT @page_size)
    UNION
    SELECT w.machine_id FROM (SELECT o.machine_id FROM owners o WHERE o.machine_id <> '' LIMIT @page_size) w
 ) u ORDER BY u.machine_id LIMIT @page_size);

-- name: EntryAt :one
SELECT machine_id, seq, ts, tx, kind, actor, operation_id, command_id, fields::text AS fields, prev_hash, hash
FROM machine_timeline WHERE machine_id = @machine_id AND seq = @seq;

-- name: RestoresOf :many
-- The entries of a history that were written where the database went back.
SELECT machine_id, seq, ts, tx, kind, actor, operation_id, command_id, fields::text AS fields, prev_hash, hash
FROM machine_timeline WHERE machine_id = @machine_id AND strpos(fields::text, '["restored"') > 0 ORDER BY seq;

-- name: NoteRestore :exec
SELECT timeline_restored();

-- name: CountMachines :one
SELECT count(*) FROM machines;

-- name: MachineFacts :one
SELECT *, encode(sha256(convert_to(spec::text || labels::text, 'UTF8')), 'hex')::text AS spec_digest
FROM machines WHERE machine_id = @machine_id;

-- name: OperationFacts :many
SELECT operation_id, type, phase, current_stage, wait_reason, coalesce(error::text, '')::text AS error, evidence::text AS evidence,
       (cancel_requested_at IS NOT NULL)::boolean AS cancel_requested
FROM operations WHERE target_id = @machine_id;

-- name: StepFacts :many
SELECT s.operation_id, s.name, s.state, s.retry_count, s.message, s.evidence::text AS evidence
FROM operation_steps s JOIN operations o USING (operation_id)
WHERE o.target_id = @machine_id AND (s.state <> 'WAITING' OR s.retry_count > 0 OR s.evidence <> '{}' OR s.message <> '');

-- name: CommandFacts :many
SELECT command_id, operation_id, kind, step_name, attempt, executor_id, state, outcome, reason, evidence::text AS evidence, settled_by,
       (claimed_at IS NOT NULL)::boolean AS claimed
FROM commands WHERE target_id = @machine_id;

-- name: WorkflowFacts :many
SELECT *, evidence::text AS evidence_text, array_to_string(plan, ',')::text AS plan_text FROM workflows WHERE machine_id = @machine_id;

-- name: MoveFacts :many
SELECT id, from_state, to_state, triggered_by, user_id FROM node_state_log WHERE machine_id = @machine_id;

-- name: AuditFacts :many
SELECT a.audit_id, a.ts, a.actor, a.verb, a.target_id, a.request_id, a.operation_id, a.salt, a.event_data::text AS data,
       coalesce(a.scrub_through::text, '')::text AS scrub_through, coalesce(a.scrub_verb, '')::text AS scrub_verb
FROM audit_log a
WHERE a.audit_id = ANY(@ids::bigint[])
   OR (@machine_id::text <> '' AND a.target_id = @machine_id)
   OR (@machine_id::text = '' AND NOT EXISTS (SELECT 1 FROM machines m WHERE m.machine_id = a.target_id));

-- name: MachinesAt :many
-- The machines of a moment by machine_id. Each one's state is one step down the index of machine_states.
SELECT m.machine_id, m.created_at, w.labels, w.spec, s.version, s.phase, s.node_state, s.node_state_changed_at, s.current_operation_id,
       s.active_workflow_id, s.unresolved_command_id, s.agent_id, s.boot_id, s.simulated, s.agentless, s.os_image_digest, s.power_state,
       s.power_state_at, s.boot_mode, s.install_attempts, s.last_install_error, s.first_provisioned_at, s.identity_level,
       s.tpm_key_digest, s.tpm_key_trust, s.tpm_key_at, s.probe_ip, s.updated_at, s.deleted_at, s.condition_types,
       s.condition_statuses, s.condition_reasons, s.condition_messages, s.condition_times, s.condition_knowns
FROM machines m
CROSS JOIN LATERAL (SELECT * FROM machine_states x WHERE x.machine_id = m.machine_id AND x.at <= @moment
                    ORDER BY x.at DESC, x.version DESC LIMIT 1) s
CROSS JOIN LATERAL (SELECT * FROM machine_words y WHERE y.machine_id = s.machine_id AND y.digest = s.said LIMIT 1) w
WHERE m.machine_id > @after_id AND s.deleted_at IS NULL
ORDER BY m.machine_id LIMIT @page_size;

-- name: MachineAt :one
-- As MachinesAt of one machine, which may be a tombstone.
SELECT m.machine_id, m.created_at, w.labels, w.spec, s.version, s.phase, s.node_state, s.node_state_changed_at, s.current_operation_id,
       s.active_workflow_id, s.unresolved_command_id, s.agent_id, s.boot_id, s.simulated, s.agentless, s.os_image_digest, s.power_state,
       s.power_state_at, s.boot_mode, s.install_attempts, s.last_install_error, s.first_provisioned_at, s.identity_level,
       s.tpm_key_digest, s.tpm_key_trust, s.tpm_key_at, s.probe_ip, s.updated_at, s.deleted_at, s.condition_types,
       s.condition_statuses, s.condition_reasons, s.condition_messages, s.condition_times, s.condition_knowns
FROM machine_states s
JOIN machines m ON m.machine_id = s.machine_id
JOIN machine_words w ON w.machine_id = s.machine_id AND w.digest = s.said
WHERE s.machine_id = @machine_id AND s.at <= @moment
ORDER BY s.at DESC, s.version DESC LIMIT 1;

-- name: StatesSince :one
SELECT states_since FROM cluster_state;

-- name: ForgetStatesBefore :exec
-- Before anything is removed, so that whoever reads it afterwards knows what may be missing.
UPDATE cluster_state SET states_since = greatest(states_since, @before);

-- name: LockMachinesAfter :many
-- Nobody adds a state of these machines meanwhile.
SELECT machine_id FROM machines WHERE machine_id > @after_id ORDER BY machine_id LIMIT @page_size FOR NO KEY UPDATE;

-- name: ForgetStates :exec
-- The last state before the time stays: it was so at the time.
DELETE FROM machine_states s
USING (SELECT unnest(@machine_ids::text[]) AS id) i
CROSS JOIN LATERAL (SELECT x.at FROM machine_states x WHERE x.machine_id = i.id AND x.at <= @before
                    ORDER BY x.at DESC, x.version DESC LIMIT 1) kept
WHERE s.machine_id = i.id AND s.at < kept.at;

-- name: ForgetWords :exec
DELETE FROM machine_words w
WHERE w.machine_id = ANY(@machine_ids::text[])
  AND NOT EXISTS (SELECT 1 FROM machine_states s WHERE s.machine_id = w.machine_id AND s.said = w.digest);
