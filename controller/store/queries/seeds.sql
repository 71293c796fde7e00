-- name: PutSystemSeed :exec
INSERT INTO system_seeds (seed_id, sealed, used_at) VALUES (@seed_id, @sealed, @now)
ON CONFLICT (seed_id) DO UPDATE SET sealed = excluded.sealed, used_at = excluded.used_at;

-- name: SystemSeedOf :one
-- Of an operation; no row where it names none. What it names and is gone reads as null.
SELECT (o.request_body ->> 'seed')::text AS seed_id, s.sealed
FROM operations o LEFT JOIN system_seeds s ON s.seed_id = o.request_body ->> 'seed'
WHERE o.operation_id = @operation_id AND o.request_body ->> 'seed' <> '';

-- name: DropSystemSeeds :execrows
-- Those last used before a time, but for what an operation or a rollout under way names; some at a time.
DELETE FROM system_seeds WHERE seed_id IN (
    SELECT s.seed_id FROM system_seeds s
    WHERE s.used_at < @before AND NOT EXISTS (
        SELECT 1 FROM operations o WHERE o.phase IN ('PENDING', 'RUNNING') AND o.request_body ->> 'seed' = s.seed_id)
    AND NOT EXISTS (
        SELECT 1 FROM rollouts r WHERE r.finished_at IS NULL AND position(convert_to(s.seed_id, 'UTF8') IN r.spec) > 0)
    LIMIT @max_rows);
