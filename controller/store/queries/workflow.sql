-- name: InsertWorkflow :exec
INSERT INTO workflows (workflow_id, machine_id, kind, mode, state, plan, stage, attempt_count, observed_provider_state,
                       operation_id, request_id, params, created_at, updated_at)
VALUES (@workflow_id, @machine_id, @kind, @mode, @state, @plan, @stage, @attempt_count, @observed_provider_state,
        @operation_id, @request_id, @params, @now, @now);

-- name: UpdateWorkflow :exec
UPDATE workflows
SET state = @state, stage = @stage, stage_idx = @stage_idx, attempt_count = @attempt_count, repeats = @repeats,
    failure_class = @failure_class, reason = @reason, message = @message,
    observed_provider_state = @observed_provider_state, last_action = @last_action, adopted = @adopted,
    evidence = @evidence, failures = @failures, unclean = @unclean, operation_id = @operation_id, updated_at = @now, ended_at = @ended_at
WHERE workflow_id = @workflow_id;

-- name: GetWorkflow :one
SELECT * FROM workflows WHERE workflow_id = @workflow_id;

-- name: LockWorkflow :one
SELECT * FROM workflows WHERE workflow_id = @workflow_id FOR UPDATE;

-- name: LockWorkflowOfOperation :one
-- The machine is locked first; an attempt that is not the workflow's newest any more moves it no longer.
SELECT * FROM workflows WHERE operation_id = @operation_id FOR UPDATE;

-- name: OpenWorkflowOf :one
SELECT * FROM workflows WHERE machine_id = @machine_id AND ended_at IS NULL;

-- name: ListWorkflows :many
SELECT * FROM workflows
WHERE (@machine_id::text = '' OR machine_id = @machine_id)
  AND (@kind::text = '' OR kind = @kind)
  AND (@mode::text = '' OR mode = @mode)
  AND (@state::text = '' OR state = @state)
  AND (@failure_class::text = '' OR failure_class = @failure_class)
  AND (NOT @only_open::boolean OR ended_at IS NULL)
  AND (sqlc.narg(selections)::jsonb IS NULL OR workflows.machine_id IN (
      SELECT m.machine_id FROM machines m
      WHERE m.deleted_at IS NULL
        AND in_selections(sqlc.narg(selections), m.machine_id, m.labels, m.spec, m.os_image_digest)))
  AND (@before_id::text = '' OR (created_at, workflow_id) < (@before_time::timestamptz, @before_id::text))
ORDER BY created_at DESC, workflow_id DESC
LIMIT @page_size;

-- name: OpenWorkflowNodes :many
-- Every workflow that holds a machine, with the node's state, for the comparison of the two.
SELECT w.workflow_id, w.machine_id, w.kind, w.mode, w.state, m.node_state FROM workflows w
JOIN machines m ON m.machine_id = w.machine_id
WHERE w.ended_at IS NULL AND w.workflow_id > @after_id::text ORDER BY w.workflow_id LIMIT @page_size;

-- name: RevokeCertsOfMachine :many
UPDATE agent_certs c SET revoked_at = @now
FROM agents a
WHERE a.agent_id = c.agent_id AND a.machine_id = @machine_id AND c.revoked_at IS NULL
RETURNING c.fingerprint;

-- name: RevokeTokensOfMachine :execrows
UPDATE bootstrap_tokens SET revoked_at = @now
WHERE machine_id = @machine_id AND used_at IS NULL AND revoked_at IS NULL;

-- name: DeleteCredentialsOnlyOf :execrows
DELETE FROM bmc_credentials c
WHERE c.credentials_ref = @credentials_ref
  AND NOT EXISTS (SELECT 1 FROM machines m WHERE m.deleted_at IS NULL AND m.machine_id <> @machine_id
                  AND m.spec ->> 'bmc_credentials_ref' = @credentials_ref::text);

-- name: CredentialsKnown :one
SELECT EXISTS (SELECT 1 FROM bmc_credentials WHERE credentials_ref = @credentials_ref);
