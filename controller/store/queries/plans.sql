-- name: GetPlan :one
SELECT * FROM plans WHERE plan_id = @plan_id;

-- name: ListPlans :many
SELECT * FROM plans ORDER BY built_in DESC, plan_id;

-- name: UpsertPlan :execrows
-- A plan may be replaced until a run has used it.
INSERT INTO plans (plan_id, display_name, body, digest, built_in, created_at)
VALUES (@plan_id, @display_name, @body, @digest, @built_in, @created_at)
ON CONFLICT (plan_id) DO UPDATE SET display_name = excluded.display_name, body = excluded.body, digest = excluded.digest
WHERE plans.used_at IS NULL AND (plans.built_in = excluded.built_in);
