-- The only statements that write the state of operations, steps and commands.

-- name: InsertOperation :exec
INSERT INTO operations (operation_id, target_id, request_id, request_body, type, phase, params, plan_id, current_stage,
                        wake_at, event_seq, destructive, created_at, updated_at)
VALUES (@operation_id, @target_id, @request_id, @request_body, @type, @phase, @params, @plan_id, @current_stage,
        @wake_at, @event_seq, @destructive, @created_at, @created_at);

-- name: InsertSteps :exec
INSERT INTO operation_steps (operation_id, idx, name, kind, spec, timeout_ms, max_retries, state)
SELECT @operation_id, unnest(@idxs::int[]), unnest(@names::text[]), unnest(@kinds::text[]), unnest(@specs::bytea[]),
       unnest(@timeouts::bigint[]), unnest(@retries::int[]), 'WAITING';

-- name: UpdateOperation :execrows
UPDATE operations
SET phase = @phase, current_step = @current_step, current_stage = @current_stage, wait_reason = @wait_reason,
    wake_at = @wake_at, cancel_requested_at = @cancel_requested_at, error = @error, evidence = @evidence,
    started_at = @started_at, finished_at = @finished_at, updated_at = @now, event_seq = @event_seq,
    version = version + 1
WHERE operation_id = @operation_id AND version = @version;

-- name: UpdateStep :exec
UPDATE operation_steps
SET state = @state, retry_count = @retry_count, retry_at = @retry_at, message = @message, evidence = @evidence,
    started_at = @started_at, finished_at = @finished_at
WHERE operation_id = @operation_id AND idx = @idx;

-- name: InsertCommand :exec
INSERT INTO commands (command_id, operation_id, target_id, step_idx, step_name, attempt, kind, spec, digest,
                      executor_id, executor_state_id, state, deadline, created_at, sent_at)
VALUES (@command_id, @operation_id, @target_id, @step_idx, @step_name, @attempt, @kind, @spec, @digest,
        @executor_id, @executor_state_id, @state, @deadline, @created_at, @sent_at);

-- name: UpdateCommand :execrows
UPDATE commands
SET state = @state, executor_state_id = @executor_state_id, outcome = @outcome, reason = @reason, message = @message,
    evidence = @evidence, boot_id_before = @boot_id_before, grant_seq = @grant_seq, deadline = @deadline,
    sent_at = @sent_at, acked_at = @acked_at, granted_at = @granted_at, claimed_at = @claimed_at,
    finished_at = @finished_at, settled_by = @settled_by
WHERE command_id = @command_id AND state = @old_state;

-- name: InsertEvents :exec
INSERT INTO operation_events (operation_id, seq, target_id, ts, kind, step, message, snapshot)
SELECT @operation_id, unnest(@seqs::bigint[]), @target_id, @ts, unnest(@kinds::text[]), unnest(@steps::text[]),
       unnest(@messages::text[]), unnest(@snapshots::bytea[]);

-- name: SetCurrentOperation :exec
UPDATE machines SET current_operation_id = @operation_id WHERE machine_id = @machine_id;

-- name: ApplyToMachine :exec
UPDATE machines
SET phase = CASE WHEN @set_phase::text = '' THEN phase ELSE @set_phase::text END,
    current_operation_id = CASE WHEN @clear_current::boolean THEN NULL ELSE current_operation_id END,
    unresolved_command_id = CASE
        WHEN @fence::text <> '' THEN @fence::text
        WHEN @unfence::text <> '' AND unresolved_command_id = @unfence::text THEN NULL
        ELSE unresolved_command_id END,
    os_image_digest = CASE WHEN @image_digest::text = '' THEN os_image_digest ELSE @image_digest::text END
WHERE machine_id = @machine_id;

-- name: ClearFence :exec
UPDATE machines SET unresolved_command_id = NULL
WHERE machine_id = @machine_id AND unresolved_command_id = @command_id;

-- name: SetCondition :exec
INSERT INTO machine_conditions (machine_id, type, status, reason, message, last_transition)
VALUES (@machine_id, @type, @status, @reason, @message, @now)
ON CONFLICT (machine_id, type) DO UPDATE
SET status = excluded.status, reason = excluded.reason, message = excluded.message,
    last_transition = CASE WHEN machine_conditions.status = excluded.status THEN machine_conditions.last_transition
                           ELSE excluded.last_transition END
WHERE (machine_conditions.status, machine_conditions.reason, machine_conditions.message)
      IS DISTINCT FROM (excluded.status, excluded.reason, excluded.message);

-- name: ClearConditionIfSet :exec
UPDATE machine_conditions SET status = false, reason = @reason, message = '', last_transition = @now
WHERE machine_id = @machine_id AND type = @type AND status;

-- name: MarkPlanUsed :exec
UPDATE plans SET used_at = @now WHERE plan_id = @plan_id AND used_at IS NULL;

-- name: NextConfigGeneration :one
UPDATE machines SET config_generation = config_generation + 1 WHERE machine_id = @machine_id
RETURNING config_generation;

-- name: ClaimDueOperations :many
-- Rows that nobody else is claiming, pushed away a little so that the claim does not repeat while the job runs. The new
-- version gives the job a key of its own: one that a dead controller left running does not swallow it.
UPDATE operations SET wake_at = @push_to, version = version + 1
WHERE operation_id IN (
    SELECT o.operation_id FROM operations o
    WHERE o.phase IN ('PENDING', 'RUNNING') AND o.wake_at <= @now
    ORDER BY o.wake_at LIMIT @max_rows FOR UPDATE SKIP LOCKED)
RETURNING operation_id, version;

-- name: RestampEvents :exec
UPDATE operation_events SET change_xid = pg_current_xact_id();

-- name: WakeOperation :execrows
-- A new version gives the look a key of its own.
UPDATE operations SET wake_at = @now, version = version + 1
WHERE operation_id = @operation_id AND phase IN ('PENDING', 'RUNNING');

-- name: WakeAdmitted :exec
-- They hold their slots now.
UPDATE operations SET wake_at = @now, version = version + 1
WHERE operation_id = ANY(@operation_ids::text[]) AND phase = 'PENDING';
