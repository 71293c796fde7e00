-- The only statements that write the state of operations, steps and commands.

-- name: InsertOperation :exec
INSERT INTO operations (operation_id, target_id, request_id, request_body, type, phase, params, plan_id, current_stage,
                        wake_at, event_seq, destructive, interrupts, created_at, updated_at)
VALUES (@operation_id, @target_id, @request_id, @request_body, @type, @phase, @params, @plan_id, @current_stage,
        @wake_at, @event_seq, @destructive, @interrupts, @created_at, @created_at);

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
-- A transaction that waited for the operation may have got its number before the one that it waited for: its events take the
-- place of the last event then, so that the feed has them in their order. No reader is past that place while this one runs.
INSERT INTO operation_events (operation_id, seq, target_id, ts, kind, step, message, snapshot, change_xid)
SELECT @operation_id, unnest(@seqs::bigint[]), @target_id, @ts, unnest(@kinds::text[]), unnest(@steps::text[]),
       unnest(@messages::text[]), unnest(@snapshots::bytea[]),
       greatest(pg_current_xact_id(), (SELECT e.change_xid FROM operation_events e
                                       WHERE e.operation_id = @operation_id ORDER BY e.seq DESC LIMIT 1));

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

-- name: Unprovision :exec
UPDATE machines SET os_image_digest = '' WHERE machine_id = @machine_id AND os_image_digest <> '';

-- name: Adopt :exec
INSERT INTO machine_conditions (machine_id, type, status, reason, message, last_transition)
VALUES (@machine_id, 'Provisioned', true, @reason, @message, @now)
ON CONFLICT (machine_id, type) DO UPDATE
SET status = true, reason = excluded.reason, message = excluded.message, last_transition = excluded.last_transition
WHERE NOT machine_conditions.status;

-- name: CausesOf :many
SELECT * FROM machine_causes WHERE machine_id = @machine_id ORDER BY cause, subject;

-- name: RaiseCause :exec
INSERT INTO machine_causes (machine_id, cause, subject, reason, message, operation_id, since)
VALUES (@machine_id, @cause, @subject, @reason, @message, @operation_id, @now)
ON CONFLICT (machine_id, cause, subject) DO UPDATE
SET reason = excluded.reason, message = excluded.message, operation_id = excluded.operation_id, since = excluded.since;

-- name: CureCause :exec
DELETE FROM machine_causes WHERE machine_id = @machine_id AND cause = @cause AND subject = @subject;

-- name: ActorOfOperation :one
-- Who asked for an operation: the first audit row of its machine that names it.
SELECT actor FROM audit_log WHERE target_id = @machine_id AND operation_id = @operation_id ORDER BY audit_id LIMIT 1;

-- name: ClearFence :exec
UPDATE machines SET unresolved_command_id = NULL
WHERE machine_id = @machine_id AND unresolved_command_id = @command_id;

-- name: SettleRepeated :exec
-- The outcome stays unknown: another operation has done the work again.
UPDATE commands SET state = 'DONE', settled_by = 'repeated' WHERE command_id = @command_id AND state = 'UNKNOWN';

-- name: SetCondition :exec
INSERT INTO machine_conditions (machine_id, type, status, reason, message, last_transition)
VALUES (@machine_id, @type, @status, @reason, @message, @now)
ON CONFLICT (machine_id, type) DO UPDATE
SET status = excluded.status, reason = excluded.reason, message = excluded.message,
    last_transition = CASE WHEN machine_conditions.status = excluded.status THEN machine_conditions.last_transition
                           ELSE excluded.last_transition END,
    known = true, observed_at = NULL, observed_by = '', last_known = NULL
WHERE (machine_conditions.status, machine_conditions.reason, machine_conditions.message, machine_conditions.known)
      IS DISTINCT FROM (excluded.status, excluded.reason, excluded.message, true);

-- name: SetConditionForReason :exec
-- As SetCondition, but a message alone is no change: it says when something is tried again, or how often it was.
INSERT INTO machine_conditions AS c (machine_id, type, status, reason, message, last_transition)
VALUES (@machine_id, @type, @status, @reason, @message, @now)
ON CONFLICT (machine_id, type) DO UPDATE
SET status = excluded.status, reason = excluded.reason, message = excluded.message,
    last_transition = CASE WHEN c.status = excluded.status THEN c.last_transition ELSE excluded.last_transition END,
    known = true, observed_at = NULL, observed_by = '', last_known = NULL
WHERE (c.status, c.reason, c.known) IS DISTINCT FROM (excluded.status, excluded.reason, true);

-- name: ClearConditionIfSet :exec
UPDATE machine_conditions SET status = false, reason = @reason, message = '',
    last_transition = CASE WHEN status THEN @now ELSE last_transition END,
    known = true, observed_at = NULL, observed_by = '', last_known = NULL
WHERE machine_id = @machine_id AND type = @type AND (status OR NOT known);

-- name: MarkPlanUsed :exec
UPDATE plans SET used_at = @now WHERE plan_id = @plan_id AND used_at IS NULL;

-- name: NextConfigGeneration :one
UPDATE machines SET config_generation = config_generation + 1 WHERE machine_id = @machine_id
RETURNING config_generation;

-- name: RestampEvents :exec
UPDATE operation_events SET change_xid = pg_current_xact_id();

-- name: WakeOperation :execrows
UPDATE operations SET wake_at = @now
WHERE operation_id = @operation_id AND phase IN ('PENDING', 'RUNNING');

-- name: WakeAdmitted :exec
-- They hold their slots now.
UPDATE operations SET wake_at = @now
WHERE operation_id = ANY(@operation_ids::text[]) AND phase = 'PENDING';

-- The same for many rows at once: parameters are arrays of the other's, in the same order. dbsqlc.Writes has the pairs.

-- name: InsertOperations :exec
INSERT INTO operations (operation_id, target_id, request_id, request_body, type, phase, params, plan_id, current_stage,
                        wake_at, event_seq, destructive, interrupts, created_at, updated_at)
SELECT unnest(@operation_ids::text[]), unnest(@target_ids::text[]), unnest(@request_ids::text[]), unnest(@request_bodies::jsonb[]),
       unnest(@types::text[]), unnest(@phases::text[]), unnest(@params::jsonb[]), unnest(@plan_ids::text[]),
       unnest(@current_stages::text[]), unnest(@wake_ats::timestamptz[]), unnest(@event_seqs::bigint[]),
       unnest(@destructives::boolean[]), unnest(@interrupting::boolean[]), unnest(@created_ats::timestamptz[]), unnest(@created_ats::timestamptz[]);

-- name: InsertStepsOfMany :exec
INSERT INTO operation_steps (operation_id, idx, name, kind, spec, timeout_ms, max_retries, state)
SELECT unnest(@operation_ids::text[]), unnest(@idxs::int[]), unnest(@names::text[]), unnest(@kinds::text[]), unnest(@specs::bytea[]),
       unnest(@timeouts::bigint[]), unnest(@retries::int[]), 'WAITING';

-- name: UpdateOperations :execrows
UPDATE operations o
SET phase = v.phase, current_step = v.current_step, current_stage = v.current_stage, wait_reason = v.wait_reason,
    wake_at = v.wake_at, cancel_requested_at = v.cancel_requested_at, error = v.error, evidence = v.evidence,
    started_at = v.started_at, finished_at = v.finished_at, updated_at = v.updated_at, event_seq = v.event_seq,
    version = o.version + 1
FROM (SELECT unnest(@phases::text[]) AS phase, unnest(@current_steps::int[]) AS current_step,
             unnest(@current_stages::text[]) AS current_stage, unnest(@wait_reasons::text[]) AS wait_reason,
             unnest(@wake_ats::timestamptz[]) AS wake_at, unnest(@cancels_requested_at::timestamptz[]) AS cancel_requested_at,
             unnest(@errors::jsonb[]) AS error, unnest(@evidences::jsonb[]) AS evidence,
             unnest(@started_ats::timestamptz[]) AS started_at, unnest(@finished_ats::timestamptz[]) AS finished_at,
             unnest(@updated_ats::timestamptz[]) AS updated_at, unnest(@event_seqs::bigint[]) AS event_seq,
             unnest(@operation_ids::text[]) AS operation_id, unnest(@versions::bigint[]) AS version) v
WHERE o.operation_id = v.operation_id AND o.version = v.version;

-- name: UpdateSteps :exec
UPDATE operation_steps s
SET state = v.state, retry_count = v.retry_count, retry_at = v.retry_at, message = v.message, evidence = v.evidence,
    started_at = v.started_at, finished_at = v.finished_at
FROM (SELECT unnest(@states::text[]) AS state, unnest(@retry_counts::int[]) AS retry_count, unnest(@retry_ats::timestamptz[]) AS retry_at,
             unnest(@messages::text[]) AS message, unnest(@evidences::jsonb[]) AS evidence,
             unnest(@started_ats::timestamptz[]) AS started_at, unnest(@finished_ats::timestamptz[]) AS finished_at,
             unnest(@operation_ids::text[]) AS operation_id, unnest(@idxs::int[]) AS idx) v
WHERE s.operation_id = v.operation_id AND s.idx = v.idx;

-- name: InsertCommands :exec
INSERT INTO commands (command_id, operation_id, target_id, step_idx, step_name, attempt, kind, spec, digest,
                      executor_id, executor_state_id, state, deadline, created_at, sent_at)
SELECT unnest(@command_ids::text[]), unnest(@operation_ids::text[]), unnest(@target_ids::text[]), unnest(@step_idxs::int[]),
       unnest(@step_names::text[]), unnest(@attempts::int[]), unnest(@kinds::text[]), unnest(@specs::bytea[]), unnest(@digests::bytea[]),
       unnest(@executor_ids::text[]), unnest(@executor_state_ids::text[]), unnest(@states::text[]), unnest(@deadlines::timestamptz[]),
       unnest(@created_ats::timestamptz[]), unnest(@sent_ats::timestamptz[]);

-- name: UpdateCommands :execrows
UPDATE commands c
SET state = v.state, executor_state_id = v.executor_state_id, outcome = v.outcome, reason = v.reason, message = v.message,
    evidence = v.evidence, boot_id_before = v.boot_id_before, grant_seq = v.grant_seq, deadline = v.deadline,
    sent_at = v.sent_at, acked_at = v.acked_at, granted_at = v.granted_at, claimed_at = v.claimed_at,
    finished_at = v.finished_at, settled_by = v.settled_by
FROM (SELECT unnest(@states::text[]) AS state, unnest(@executor_state_ids::text[]) AS executor_state_id,
             unnest(@outcomes::text[]) AS outcome, unnest(@reasons::text[]) AS reason, unnest(@messages::text[]) AS message,
             unnest(@evidences::jsonb[]) AS evidence, unnest(@boot_ids_before::text[]) AS boot_id_before,
             unnest(@grant_seqs::bigint[]) AS grant_seq, unnest(@deadlines::timestamptz[]) AS deadline,
             unnest(@sent_ats::timestamptz[]) AS sent_at, unnest(@acked_ats::timestamptz[]) AS acked_at,
             unnest(@granted_ats::timestamptz[]) AS granted_at, unnest(@claimed_ats::timestamptz[]) AS claimed_at,
             unnest(@finished_ats::timestamptz[]) AS finished_at, unnest(@settled_bys::text[]) AS settled_by,
             unnest(@command_ids::text[]) AS command_id, unnest(@old_states::text[]) AS old_state) v
WHERE c.command_id = v.command_id AND c.state = v.old_state;

-- name: InsertEventsOfMany :exec
-- In the order of InsertEvents.
INSERT INTO operation_events (operation_id, seq, target_id, ts, kind, step, message, snapshot, change_xid)
SELECT v.operation_id, v.seq, v.target_id, v.ts, v.kind, v.step, v.message, v.snapshot,
       greatest(pg_current_xact_id(), (SELECT e.change_xid FROM operation_events e
                                       WHERE e.operation_id = v.operation_id ORDER BY e.seq DESC LIMIT 1))
FROM (SELECT unnest(@operation_ids::text[]) AS operation_id, unnest(@seqs::bigint[]) AS seq, unnest(@target_ids::text[]) AS target_id,
             unnest(@tss::timestamptz[]) AS ts, unnest(@kinds::text[]) AS kind, unnest(@steps::text[]) AS step,
             unnest(@messages::text[]) AS message, unnest(@snapshots::bytea[]) AS snapshot) v;

-- name: SetCurrentOperations :exec
UPDATE machines m SET current_operation_id = v.operation_id
FROM (SELECT unnest(@operation_ids::text[]) AS operation_id, unnest(@machine_ids::text[]) AS machine_id) v
WHERE m.machine_id = v.machine_id;

-- name: ApplyToMachines :exec
UPDATE machines m
SET phase = CASE WHEN v.set_phase = '' THEN m.phase ELSE v.set_phase END,
    current_operation_id = CASE WHEN v.clear_current THEN NULL ELSE m.current_operation_id END,
    unresolved_command_id = CASE
        WHEN v.fence <> '' THEN v.fence
        WHEN v.unfence <> '' AND m.unresolved_command_id = v.unfence THEN NULL
        ELSE m.unresolved_command_id END,
    os_image_digest = CASE WHEN v.image_digest = '' THEN m.os_image_digest ELSE v.image_digest END
FROM (SELECT unnest(@set_phases::text[]) AS set_phase, unnest(@clear_currents::boolean[]) AS clear_current,
             unnest(@fences::text[]) AS fence, unnest(@unfences::text[]) AS unfence, unnest(@image_digests::text[]) AS image_digest,
             unnest(@machine_ids::text[]) AS machine_id) v
WHERE m.machine_id = v.machine_id;
