-- name: GetPlan :one
SELECT * FROM plans WHERE plan_id = @plan_id;

-- name: HoldPlan :one
-- Keeps an unused plan from being deleted until the transaction ends.
SELECT * FROM plans WHERE plan_id = @plan_id FOR KEY SHARE;

-- name: LockPlan :one
SELECT * FROM plans WHERE plan_id = @plan_id FOR UPDATE;

-- name: ListPlans :many
-- Built-in ones first.
SELECT * FROM plans
WHERE NOT @has_position::boolean OR (NOT built_in, plan_id) > (NOT @after_built_in::boolean, @after_id::text)
ORDER BY NOT built_in, plan_id LIMIT @page_size;

-- name: UpsertPlan :execrows
-- A plan may be replaced until a run has used it.
INSERT INTO plans (plan_id, display_name, body, digest, built_in, created_at)
VALUES (@plan_id, @display_name, @body, @digest, @built_in, @created_at)
ON CONFLICT (plan_id) DO UPDATE SET display_name = excluded.display_name, body = excluded.body, digest = excluded.digest,
    version = plans.version + 1
WHERE plans.used_at IS NULL AND plans.built_in = excluded.built_in AND plans.digest <> excluded.digest;

-- name: DeletePlan :exec
DELETE FROM plans WHERE plan_id = @plan_id;

-- name: NeederOfPlan :one
-- A machine or an open rollout that names a plan.
SELECT needer::text FROM (
    (SELECT 'machine ' || m.machine_id AS needer FROM machines m WHERE m.plan_id = @plan_id::text LIMIT 1)
    UNION ALL
    (SELECT 'rollout ' || r.rollout_id FROM rollouts r
     WHERE r.plan_id = @plan_id::text AND r.state IN ('AWAITING_APPROVAL', 'RUNNING', 'PAUSED', 'STOPPING') LIMIT 1)) n
LIMIT 1;
