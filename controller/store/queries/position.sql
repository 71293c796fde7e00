-- How far the database has got, against what was seen of it.

-- name: ServerIdentity :one
-- Which server this is: its history of the WAL, when it was started, and when it last lost its statistics, as it does in
-- each recovery from a crash. It fails on a standby.
SELECT ((SELECT system_identifier::text FROM pg_control_system()) || '/' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::text AS wal_history,
       pg_postmaster_start_time()::timestamptz AS started_at,
       coalesce(pg_stat_get_bgwriter_stat_reset_time(), 'epoch')::timestamptz AS recovered_at;

-- name: PositionOf :one
-- What is stored of a controller; a beat of -1 where the controller is not known.
SELECT c.incarnation, c.wal_history AS compared,
       coalesce((SELECT k.beat FROM controllers k WHERE k.controller_id = @controller_id), -1)::bigint AS beat
FROM cluster_state c;

-- name: Beat :one
UPDATE controllers SET beat = beat + 1, wal_history = @wal_history WHERE controller_id = @controller_id RETURNING beat;

-- name: ConcludeComparison :execrows
-- All controllers that are alive have compared this history. Those of an older version never do.
UPDATE cluster_state c SET wal_history = @wal_history
WHERE c.incarnation = @incarnation
  AND (c.wal_history = '' OR NOT EXISTS (
        SELECT 1 FROM controllers k WHERE k.lease_until > @now AND k.wal_history NOT IN ('', @wal_history)));

-- name: LostOperations :many
-- Operations that were seen at a version which the database does not have.
SELECT s.operation_id::text AS operation_id
FROM (SELECT unnest(@operation_ids::text[]) AS operation_id, unnest(@versions::bigint[]) AS version) s
LEFT JOIN operations o ON o.operation_id = s.operation_id
WHERE o.operation_id IS NULL OR o.version < s.version
ORDER BY s.operation_id;

-- name: LostGrants :many
-- Commands that were granted under a number which the database does not have.
SELECT s.command_id::text AS command_id
FROM (SELECT unnest(@command_ids::text[]) AS command_id, unnest(@seqs::bigint[]) AS seq) s
LEFT JOIN commands c ON c.command_id = s.command_id
WHERE c.command_id IS NULL OR c.grant_seq < s.seq
ORDER BY s.command_id;

-- name: LockClusterState :one
SELECT * FROM cluster_state FOR UPDATE;
