-- name: GetCluster :one
SELECT * FROM clusters WHERE cluster_ref = @cluster_ref;

-- name: HoldCluster :one
-- For whoever is about to start work with the cluster: it is not deleted before the transaction has ended.
SELECT * FROM clusters WHERE cluster_ref = @cluster_ref FOR SHARE;

-- name: LockCluster :one
SELECT * FROM clusters WHERE cluster_ref = @cluster_ref FOR UPDATE;

-- name: PutCluster :one
INSERT INTO clusters (cluster_ref, server, ca_pem, sealed, updated_at) VALUES (@cluster_ref, @server, @ca_pem, @sealed, @now)
ON CONFLICT (cluster_ref) DO UPDATE
SET server = excluded.server, ca_pem = excluded.ca_pem, sealed = excluded.sealed, version = clusters.version + 1,
    updated_at = excluded.updated_at
RETURNING *;

-- name: ListClusters :many
SELECT * FROM clusters WHERE cluster_ref > @after_ref ORDER BY cluster_ref LIMIT @page_size;

-- name: DeleteCluster :exec
DELETE FROM clusters WHERE cluster_ref = @cluster_ref;

-- name: MachineWithCluster :one
SELECT machine_id FROM machines
WHERE deleted_at IS NULL AND spec ->> 'target_cluster_ref' = @cluster_ref::text ORDER BY machine_id LIMIT 1;

-- name: ClusterStepsUnderWay :many
-- The cluster's name is inside the step.
SELECT s.operation_id, s.spec FROM operation_steps s JOIN operations o ON o.operation_id = s.operation_id
WHERE o.phase IN ('PENDING', 'RUNNING') AND s.kind IN ('join', 'verify', 'drain', 'uncordon');

-- name: SystemUUIDOf :one
-- Of the newest inventory; empty where it shows none.
SELECT coalesce((SELECT i.document #>> '{system,uuid}' FROM inventories i WHERE i.machine_id = @machine_id
                 ORDER BY i.reported_at DESC LIMIT 1), '')::text AS system_uuid;
