-- name: InsertRollout :exec
INSERT INTO rollouts (rollout_id, request_id, spec, type, plan_id, destructive, digest, state, wait_reason, waves, created_by,
    created_by_identity, created_at, updated_at, wake_at, approval_policies, default_in_flight, default_per_rack, rights_from)
VALUES (@rollout_id, @request_id, @spec, @type, @plan_id, @destructive, @digest, @state, @wait_reason, @waves, @created_by,
    @created_by_identity, @now, @now, @wake_at, @approval_policies, @default_in_flight, @default_per_rack, @rights_from);

-- name: InsertRolloutMachines :exec
INSERT INTO rollout_machines (rollout_id, position, machine_id, wave, domain, state, reason, message, stages_left)
SELECT @rollout_id, unnest(@positions::integer[]), unnest(@machine_ids::text[]), unnest(@waves::integer[]), unnest(@domains::text[]),
       unnest(@states::text[]), unnest(@reasons::text[]), unnest(@messages::text[]), @stages_left;

-- name: GetRollout :one
SELECT * FROM rollouts WHERE rollout_id = @rollout_id;

-- name: GetRolloutByRequest :one
SELECT * FROM rollouts WHERE request_id = @request_id;

-- name: LockRollout :one
SELECT * FROM rollouts WHERE rollout_id = @rollout_id FOR UPDATE;

-- name: LockDueRollout :one
-- One controller at a time decides on a rollout.
SELECT * FROM rollouts WHERE rollout_id = @rollout_id AND (wake_at <= @now OR staged_wake_at <= @now)
FOR UPDATE SKIP LOCKED;

-- name: HoldRollout :one
-- Who starts a machine holds the rollout's state as it is.
SELECT * FROM rollouts WHERE rollout_id = @rollout_id FOR SHARE;

-- name: ListRollouts :many
SELECT * FROM rollouts
WHERE (@state::text = '' OR state = @state) AND (@request_id::text = '' OR request_id = @request_id)
  AND (@identity::text = '' OR created_by_identity = @identity)
  AND (@before_id::text = '' OR (created_at, rollout_id) < (@before_time::timestamptz, @before_id::text))
ORDER BY created_at DESC, rollout_id DESC LIMIT @page_size;

-- name: DueRollouts :many
-- Those of several operations per machine have another column, which older versions do not look at.
SELECT rollout_id FROM rollouts WHERE wake_at <= @now OR staged_wake_at <= @now
ORDER BY coalesce(wake_at, staged_wake_at) LIMIT 100;

-- name: RolloutsByIDs :many
SELECT * FROM rollouts WHERE rollout_id = ANY(@rollout_ids::text[]);

-- name: RowsOfRolloutMachines :many
-- The machines of a rollout as they are now, in its order; those that were refused from the beginning are none of it.
SELECT sqlc.embed(m), r.position FROM rollout_machines r JOIN machines m ON m.machine_id = r.machine_id
WHERE r.rollout_id = @rollout_id AND r.wave > 0 AND r.position > @after ORDER BY r.position LIMIT @page_size;

-- name: TallyRollouts :many
SELECT rollout_id, wave, state, count(*)::integer AS machines FROM rollout_machines
WHERE rollout_id = ANY(@rollout_ids::text[]) GROUP BY rollout_id, wave, state;

-- name: RunningByDomain :many
-- held are those that wait for a slot of a budget.
SELECT r.domain, count(*)::integer AS machines,
       (count(*) FILTER (WHERE o.phase = 'PENDING' AND o.wait_reason = 'WAITING_FOR_BUDGET'))::integer AS held
FROM rollout_machines r LEFT JOIN operations o ON o.operation_id = r.operation_id
WHERE r.rollout_id = @rollout_id AND r.state IN ('STARTING', 'RUNNING') GROUP BY r.domain;

-- name: PendingOfWave :many
SELECT machine_id, domain FROM rollout_machines
WHERE rollout_id = @rollout_id AND wave = @wave AND state = 'PENDING' ORDER BY position;

-- name: SettleRolloutMachines :execrows
-- Machines whose operations have ended. One that needs another operation becomes STARTING instead, by a trigger.
UPDATE rollout_machines r
SET state = o.phase, finished_at = o.finished_at, reason = coalesce(o.error->>'code', ''),
    message = coalesce(o.error->>'message', '')
FROM operations o
WHERE r.rollout_id = @rollout_id AND r.state = 'RUNNING' AND o.operation_id = r.operation_id
  AND o.phase IN ('SUCCEEDED', 'FAILED', 'CANCELED');

-- name: ClaimRolloutMachines :exec
UPDATE rollout_machines SET state = 'STARTING', started_at = @now
WHERE rollout_id = @rollout_id AND state = 'PENDING' AND machine_id = ANY(@machine_ids::text[]);

-- name: CancelPendingMachines :execrows
UPDATE rollout_machines SET state = 'CANCELED', finished_at = @now, reason = 'ROLLOUT_STOPPED'
WHERE rollout_id = @rollout_id AND state = 'PENDING';

-- name: StartingMachines :many
SELECT machine_id FROM rollout_machines WHERE rollout_id = @rollout_id AND state = 'STARTING' ORDER BY position;

-- name: LockStartingMachine :one
SELECT stages_left FROM rollout_machines
WHERE rollout_id = @rollout_id AND machine_id = @machine_id AND state = 'STARTING' FOR UPDATE;

-- name: MoveRolloutMachine :exec
UPDATE rollout_machines
SET state = @state, operation_id = coalesce(sqlc.narg(operation_id)::text, operation_id), reason = @reason, message = @message,
    started_at = CASE WHEN @state = 'PENDING' THEN NULL ELSE started_at END, finished_at = sqlc.narg(finished_at)
WHERE rollout_id = @rollout_id AND machine_id = @machine_id;

-- name: TouchRollout :exec
-- Look again now: something has changed.
UPDATE rollouts SET wake_at = @now WHERE rollout_id = @rollout_id AND state IN ('RUNNING', 'PAUSED', 'STOPPING');

-- name: UpdateRollout :exec
UPDATE rollouts
SET state = @state, cause = @cause, wait_reason = @wait_reason, message = @message, wave = @wave, acked = @acked,
    acked_wave = @acked_wave, cancel_operations = @cancel_operations, soak_until = sqlc.narg(soak_until), approved_by = @approved_by, approved_at = sqlc.narg(approved_at),
    finished_at = sqlc.narg(finished_at), wake_at = sqlc.narg(wake_at), updated_at = @now, version = version + 1
WHERE rollout_id = @rollout_id;

-- name: SleepRollout :exec
-- Nothing has changed but when to look again.
UPDATE rollouts SET wake_at = sqlc.narg(wake_at) WHERE rollout_id = @rollout_id;

-- name: ListRolloutMachines :many
SELECT * FROM rollout_machines
WHERE rollout_id = @rollout_id AND position > @after
  AND (@state::text = '' OR state = ANY(CASE WHEN @state::text = 'RUNNING' THEN ARRAY['STARTING', 'RUNNING'] ELSE ARRAY[@state::text] END))
  AND (@wave::integer < 0 OR wave = @wave)
ORDER BY position LIMIT @page_size;

-- name: OperationsOfRollout :many
-- Those that have not ended; only such that have not begun where unbegun is true.
SELECT o.operation_id FROM rollout_machines r JOIN operations o ON o.operation_id = r.operation_id
WHERE r.rollout_id = @rollout_id AND r.state = 'RUNNING' AND o.cancel_requested_at IS NULL
  AND (o.phase = 'PENDING' OR o.phase = 'RUNNING' AND NOT @unbegun::boolean)
ORDER BY o.operation_id;

-- name: RolloutOfMachine :one
-- The rollout of the machine's operation; else one that works on the machine, else the first that will. Those that run come
-- before those that are held up.
SELECT r.rollout_id, r.state, r.wait_reason, r.message, r.wave AS wave_now, r.waves, r.digest, r.created_by, m.wave, m.state AS machine_state
FROM rollout_machines m JOIN rollouts r USING (rollout_id)
WHERE m.machine_id = @machine_id AND m.state IN ('PENDING', 'STARTING', 'RUNNING')
ORDER BY coalesce(m.operation_id = (SELECT x.current_operation_id FROM machines x WHERE x.machine_id = m.machine_id), false) DESC,
         m.state = 'PENDING', r.state = 'RUNNING' DESC, r.created_at, r.rollout_id LIMIT 1;

-- name: CountRollouts :many
SELECT state, count(*) AS n FROM rollouts
WHERE state IN ('AWAITING_APPROVAL', 'RUNNING', 'PAUSED', 'STOPPING') GROUP BY state;

-- name: LockApprovals :exec
-- Whoever changes policies, and whoever counts work by them, one at a time until the transaction ends.
SELECT pg_advisory_xact_lock(7022147291);

-- name: AnyApprovalPolicy :one
SELECT EXISTS (SELECT 1 FROM approval_policies)::boolean AS any_policy;

-- name: ApprovalPolicy :one
SELECT * FROM approval_policies WHERE name = @name AND held_to = '';

-- name: InsertApprovalPolicy :one
INSERT INTO approval_policies (name, harm, selection, terms, machines, set_by, updated_at, version)
VALUES (@name, @harm, @selection, @terms, @machines, @set_by, @now, @version)
RETURNING *;

-- name: RetireApprovalPolicy :exec
UPDATE approval_policies SET held_to = @held_to, held_until = @held_until WHERE policy_id = @policy_id;

-- name: ApprovalPoliciesAfter :many
SELECT * FROM approval_policies WHERE held_to = '' AND name > @after_name ORDER BY name LIMIT @page_size;

-- name: DemandingPolicies :many
-- The policies by which an identity may not begin destructive work on machines without approval: those that hold some of them,
-- and by which the identity would have begun work on more machines than it may since a time. A machine counts by what it was
-- when the work began, and by what it is.
SELECT p.name, p.machines FROM approval_policies p
WHERE p.harm = 'DESTROYS' AND (p.held_to = '' OR p.held_to = @identity::text AND p.held_until > @now::timestamptz)
  AND EXISTS (SELECT 1 FROM machines m WHERE m.machine_id = ANY(@machine_ids::text[])
              AND in_selections(p.terms, m.machine_id, m.labels, m.spec, m.os_image_digest))
  AND (SELECT count(*) FROM (
          SELECT m.machine_id FROM machines m WHERE m.machine_id = ANY(@machine_ids::text[])
            AND in_selections(p.terms, m.machine_id, m.labels, m.spec, m.os_image_digest)
          UNION
          SELECT w.machine_id FROM unapproved_work w JOIN machines m ON m.machine_id = w.machine_id
          WHERE w.identity = @identity AND w.at > @since::timestamptz
            AND (in_selections(p.terms, w.machine_id, w.labels, w.spec, w.os_image_digest)
                 OR in_selections(p.terms, m.machine_id, m.labels, m.spec, m.os_image_digest))) counted) > p.machines
ORDER BY p.name;

-- name: RecordUnapprovedWork :exec
INSERT INTO unapproved_work (identity, machine_id, at, labels, spec, os_image_digest)
SELECT @identity, m.machine_id, @now, m.labels, selectable_spec(m.spec), m.os_image_digest
FROM machines m WHERE m.machine_id = ANY(@machine_ids::text[]);

-- name: ForgetUnapprovedWork :exec
WITH gone AS (DELETE FROM approval_policies WHERE held_to <> '' AND held_until < @before)
DELETE FROM unapproved_work WHERE at < @before;
