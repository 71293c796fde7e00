-- What is found exactly comes first, then what begins so. A lease names a machine by its MAC address.
-- name: SearchMachines :many
SELECT n.machine_id, n.words FROM (
    SELECT x.machine_id, x.words FROM machine_names x WHERE strpos(x.words, @words::text) > 0
    UNION ALL
    SELECT a.machine_id, E'\nADDRESS\t' || host(l.address) || E'\n'
    FROM site_leases l JOIN machine_macs a ON a.mac = l.mac
    WHERE @words::text ~ '^[0-9a-f.:]+$' AND strpos(host(l.address), @words::text) = 1
) n JOIN machines m ON m.machine_id = n.machine_id
WHERE m.deleted_at IS NULL
  AND (NOT @narrow::boolean OR in_selections(@selections::jsonb, m.machine_id, m.labels, m.spec, m.os_image_digest))
ORDER BY strpos(n.words, E'\t' || @words::text || E'\n') = 0, strpos(n.words, E'\t' || @words::text) = 0, n.machine_id
LIMIT @at_most;
