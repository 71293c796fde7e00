-- name: GetOperation :one
SELECT * FROM operations WHERE operation_id = @operation_id;

-- name: LockOperation :one
SELECT * FROM operations WHERE operation_id = @operation_id FOR UPDATE;

-- name: LockOperations :many
SELECT * FROM operations WHERE operation_id = ANY(@operation_ids::text[]) ORDER BY operation_id FOR UPDATE;

-- name: GetOperationByRequest :one
SELECT * FROM operations WHERE target_id = @target_id AND request_id = @request_id;

-- name: StepsOf :many
SELECT * FROM operation_steps WHERE operation_id = @operation_id ORDER BY idx;

-- name: StepsOfMany :many
SELECT * FROM operation_steps WHERE operation_id = ANY(@operation_ids::text[]) ORDER BY operation_id, idx;

-- name: ProgressOf :many
SELECT * FROM step_progress WHERE operation_id = ANY(@operation_ids::text[]);

-- name: RecordProgress :exec
INSERT INTO step_progress (operation_id, idx, percent, message, updated_at)
SELECT c.operation_id, c.step_idx, @percent, @message, @now FROM commands c
WHERE c.command_id = @command_id AND c.executor_id = @executor_id AND c.state = 'GRANTED'
ON CONFLICT (operation_id, idx) DO UPDATE
SET percent = excluded.percent, message = excluded.message, updated_at = excluded.updated_at;

-- name: ListOperations :many
SELECT * FROM operations
WHERE (@machine_id::text = '' OR target_id = @machine_id)
  AND (@operation_id::text = '' OR operation_id = @operation_id)
  AND (@request_id::text = '' OR request_id = @request_id)
  AND (@type::text = '' OR type = @type)
  AND (@phase::text = '' OR phase = @phase)
  AND (sqlc.narg(created_after)::timestamptz IS NULL OR created_at > sqlc.narg(created_after))
  AND (sqlc.narg(created_before)::timestamptz IS NULL OR created_at < sqlc.narg(created_before))
  AND (sqlc.narg(selections)::jsonb IS NULL OR target_id IN (
      SELECT m.machine_id FROM machines m
      WHERE m.deleted_at IS NULL
        AND in_selections(sqlc.narg(selections), m.machine_id, m.labels, m.spec, m.os_image_digest)))
  AND (@before_id::text = '' OR (created_at, operation_id) < (@before_time::timestamptz, @before_id::text))
ORDER BY created_at DESC, operation_id DESC
LIMIT @page_size;

-- name: GetCommand :one
SELECT c.*, a.role AS executor_role FROM commands c JOIN agents a ON a.agent_id = c.executor_id
WHERE c.command_id = @command_id;

-- name: LatestCommandOf :one
SELECT c.*, a.role AS executor_role FROM commands c JOIN agents a ON a.agent_id = c.executor_id
WHERE c.operation_id = @operation_id ORDER BY c.step_idx DESC, c.attempt DESC LIMIT 1;

-- name: CommandsFor :many
-- The named commands, and the latest ones of the operations.
SELECT c.*, a.role AS executor_role FROM commands c JOIN agents a ON a.agent_id = c.executor_id
WHERE c.command_id = ANY(@command_ids::text[])
UNION ALL
SELECT c.*, a.role AS executor_role FROM unnest(@operation_ids::text[]) o(operation_id)
CROSS JOIN LATERAL (SELECT * FROM commands l WHERE l.operation_id = o.operation_id ORDER BY l.step_idx DESC, l.attempt DESC LIMIT 1) c
JOIN agents a ON a.agent_id = c.executor_id;

-- name: OperationsByRequest :many
SELECT o.* FROM (SELECT unnest(@target_ids::text[]) AS target_id, unnest(@request_ids::text[]) AS request_id) r
JOIN operations o ON o.target_id = r.target_id AND o.request_id = r.request_id;

-- name: LatestCommandsOfMany :many
SELECT DISTINCT ON (operation_id, step_idx) operation_id, step_idx, command_id, executor_id FROM commands
WHERE operation_id = ANY(@operation_ids::text[]) ORDER BY operation_id, step_idx, attempt DESC;

-- name: ListCommands :many
SELECT * FROM commands
WHERE (@operation_id::text = '' OR operation_id = @operation_id) AND (@machine_id::text = '' OR target_id = @machine_id)
  AND (@before_id::text = '' OR (created_at, command_id) < (@before_time::timestamptz, @before_id::text))
ORDER BY created_at DESC, command_id DESC LIMIT @page_size;

-- name: CountWork :one
-- Operations that run, wait, and have failed since a time, and agents that hold a session.
SELECT (SELECT count(*) FROM operations WHERE phase = 'RUNNING')::int AS running,
    (SELECT count(*) FROM operations WHERE phase = 'PENDING')::int AS pending,
    (SELECT count(*) FROM operations WHERE phase = 'FAILED' AND created_at > @since::timestamptz)::int AS failed,
    (SELECT count(*) FROM agent_sessions WHERE ended_at IS NULL)::int AS agents;

-- name: CountUnwakeable :one
SELECT count(*) FROM operations WHERE phase IN ('PENDING', 'RUNNING') AND wake_at < @overdue;

-- name: OperationsTouchedByAgent :many
-- Each way to an operation has an index of its own: one condition over all of them would read all operations under way.
WITH touched AS (
    SELECT o.operation_id FROM machines m JOIN operations o ON o.target_id = m.machine_id AND o.phase IN ('PENDING', 'RUNNING')
    WHERE m.agent_id = @agent_id::text
    UNION
    SELECT c.operation_id FROM commands c
    WHERE c.executor_id = @agent_id::text AND c.state IN ('QUEUED', 'SENT', 'ACKED', 'GRANTED')
    UNION
    SELECT a.operation_id FROM agents a WHERE a.agent_id = @agent_id::text AND a.role = 'installer')
SELECT o.operation_id FROM touched JOIN operations o USING (operation_id)
WHERE o.phase IN ('PENDING', 'RUNNING')
ORDER BY o.created_at LIMIT 20000;

-- name: OperationsWaitingForSiteAgent :many
SELECT o.operation_id FROM operations o JOIN machines m ON m.machine_id = o.target_id
WHERE o.phase IN ('PENDING', 'RUNNING') AND m.site = @site
  AND o.wait_reason IN ('WAITING_FOR_AGENT', 'WAITING_FOR_SITE', 'NOBODY_REACHES_MACHINE')
ORDER BY o.created_at LIMIT 20000;

-- name: EventsOf :many
SELECT * FROM operation_events WHERE operation_id = @operation_id AND seq > @after_seq ORDER BY seq LIMIT @page_size;

-- name: EventFeed :many
-- In one statement: rows and their bound. An event whose transaction might still be followed by a smaller one waits.
SELECT * FROM operation_events
WHERE (change_xid, operation_id, seq) > (CAST(@after_xid::text AS xid8), @after_operation::text, @after_seq::bigint)
  AND change_xid < pg_snapshot_xmin(pg_current_snapshot())
ORDER BY change_xid, operation_id, seq LIMIT @page_size;

-- name: FeedHead :one
SELECT pg_snapshot_xmin(pg_current_snapshot())::text AS xmin;

-- name: AppendLog :one
INSERT INTO operation_logs (operation_id, seq, ts, stream, step, data)
SELECT o.operation_id, (SELECT coalesce(max(l.seq), 0) + 1 FROM operation_logs l WHERE l.operation_id = o.operation_id),
       @ts, @stream, @step, @data
FROM operations o WHERE o.operation_id = @operation_id
RETURNING seq;

-- name: LockOperationForLog :one
-- The size of the log: it is added up once there are some pieces.
SELECT coalesce(l.last, 0)::bigint AS last,
       (CASE WHEN l.last < @few::bigint THEN 0
             ELSE coalesce((SELECT sum(octet_length(p.data)) FROM operation_logs p WHERE p.operation_id = o.operation_id), 0) END)::bigint AS bytes,
       EXISTS (SELECT 1 FROM operation_logs p WHERE p.operation_id = o.operation_id AND p.seq = l.last AND p.step = @full_step) AS full
FROM operations o CROSS JOIN LATERAL (SELECT max(seq) AS last FROM operation_logs p WHERE p.operation_id = o.operation_id) l
WHERE o.operation_id = @operation_id FOR NO KEY UPDATE OF o;

-- name: LogsOf :many
SELECT * FROM operation_logs WHERE operation_id = @operation_id AND seq > @after_seq ORDER BY seq LIMIT @page_size;

-- name: LogsFrom :many
-- Operations that have a log, by id, which is by age; with when they ended.
WITH RECURSIVE has AS (
    (SELECT l.operation_id FROM operation_logs l WHERE l.operation_id > @after_id ORDER BY l.operation_id LIMIT 1)
    UNION ALL
    SELECT (SELECT l.operation_id FROM operation_logs l WHERE l.operation_id > has.operation_id ORDER BY l.operation_id LIMIT 1)
    FROM has WHERE has.operation_id IS NOT NULL)
SELECT o.operation_id, o.created_at, o.finished_at FROM has JOIN operations o ON o.operation_id = has.operation_id LIMIT @page_size;

-- name: DropLog :exec
DELETE FROM operation_logs WHERE operation_id = @operation_id AND seq <= @through;
