-- What must not get slower as the fleet grows.

-- name: WalkAllMachines :many
SELECT * FROM machines WHERE deleted_at IS NULL AND machine_id > @after_id ORDER BY machine_id LIMIT @page_size;

-- name: MachinesWithCondition :many
SELECT machine_id FROM machine_conditions WHERE type = @type AND status AND machine_id > @after_id ORDER BY machine_id LIMIT @max_rows;

-- name: HeartbeatsOfAgents :many
-- One by one, as ConditionsOfPage.
SELECT s.agent_id, s.last_heartbeat_at FROM unnest(@agent_ids::text[]) AS i(id)
CROSS JOIN LATERAL (SELECT * FROM agent_sessions x WHERE x.agent_id = i.id LIMIT 1) s;

-- name: MachinesOfPage :many
-- In their order. One that is no longer in the place where it was found is looked up by its id, which reads four pages instead of one.
SELECT m.*
FROM (SELECT unnest(@machine_ids::text[]) AS id, unnest(@places::text[]) AS place, generate_subscripts(@machine_ids::text[], 1) AS nr) i
CROSS JOIN LATERAL (
    SELECT * FROM machines x WHERE x.ctid = CAST(i.place AS tid) AND x.machine_id = i.id
    UNION ALL SELECT * FROM machines x WHERE x.machine_id = i.id
    LIMIT 1) m ORDER BY i.nr;

-- name: ConditionsOfPage :many
-- As ConditionsOf, of many machines, each looked up by itself: a database that has no statistics yet would read all conditions of the fleet.
SELECT c.* FROM unnest(@machine_ids::text[]) AS i(id)
CROSS JOIN LATERAL (SELECT * FROM machine_conditions x WHERE x.machine_id = i.id ORDER BY x.type) c;

-- name: FewChangedMachines :many
-- As ChangedMachines from the beginning, for when few have changed since: those are found first and put in order then.
-- Of more than max_rows that have changed it finds some, and counts no further. The range has two ends for the sake of a database
-- without statistics, as in ReconcileBounds.
WITH few AS MATERIALIZED (
    SELECT m.machine_id, m.change_xid, m.ctid::text AS place FROM machines m
    WHERE m.updated_at BETWEEN @since AND 'infinity' AND m.change_xid < pg_snapshot_xmin(pg_current_snapshot())
    LIMIT @max_rows)
SELECT machine_id, change_xid, place, count(*) OVER () AS counted FROM few ORDER BY change_xid, machine_id LIMIT @page_size;

-- name: EndOfSlice :one
-- The last of the machines that follow one.
SELECT coalesce(max(machine_id), '')::text AS last, count(*) AS machines
FROM (SELECT machine_id FROM machines WHERE machine_id > @after_id ORDER BY machine_id LIMIT @size) slice;

-- name: ReachableOfSlice :many
-- Of the machines that follow one, those whose agent has missed its heartbeats and that still count as reachable, or as
-- active; and those whose agent speaks and that do not count as reachable, or that count as offline. What the site's agent
-- has reached of a machine without an agent stays so: no heartbeat is missed there. Those installed without one are
-- probed instead. Each machine is looked up by itself, so
-- that the whole of the other tables is never read.
SELECT h.machine_id, (h.session = 'silent')::boolean AS silent
FROM (SELECT m.machine_id, m.agent_id, m.node_state, m.agentless,
             (SELECT c.status AND (m.agent_id IS NOT NULL OR c.reason <> 'SiteAgent')
                FROM machine_conditions c WHERE c.machine_id = m.machine_id AND c.type = 'Reachable') AS reachable,
             coalesce((SELECT CASE WHEN s.last_heartbeat_at >= @silent_since THEN CASE WHEN s.ended_at IS NULL THEN 'speaks' ELSE 'ended' END
                                   ELSE (SELECT CASE WHEN v.silent_from < @silent_since THEN 'silent' ELSE 'unknown' END
                                         FROM agent_silence v WHERE v.agent_id = s.agent_id) END
                       FROM agent_sessions s WHERE s.agent_id = m.agent_id),
                      (SELECT CASE WHEN w.since + w.reconnect_time < @silent_since THEN 'silent' ELSE 'unknown' END FROM listening w)) AS session
      FROM machines m WHERE m.machine_id > @after_id ORDER BY m.machine_id LIMIT @size) h
WHERE h.session = 'silent' AND NOT h.agentless AND (h.reachable OR h.node_state = 'active' AND h.agent_id IS NOT NULL)
   OR h.session = 'speaks' AND (h.reachable IS NOT TRUE OR h.node_state = 'offline')
ORDER BY h.machine_id;

-- name: HostsSilentLately :many
-- The same of machines whose agent was heard last within a time.
SELECT m.machine_id FROM agent_silence s
JOIN machines m ON m.agent_id = s.agent_id
LEFT JOIN machine_conditions c ON c.machine_id = m.machine_id AND c.type = 'Reachable'
WHERE s.last_heartbeat_at >= @heard_after AND s.last_heartbeat_at < @silent_since AND s.silent_from < @silent_since
  AND (c.status OR m.node_state = 'active')
ORDER BY m.machine_id LIMIT 1000;

-- name: HostsSpeakingLately :many
-- The same of machines whose agent has opened its session within a time.
SELECT m.machine_id FROM agent_sessions s
JOIN machines m ON m.agent_id = s.agent_id
LEFT JOIN machine_conditions c ON c.machine_id = m.machine_id AND c.type = 'Reachable'
WHERE s.ended_at IS NULL AND s.started_at >= @opened_after AND s.last_heartbeat_at >= @silent_since
  AND (c.status IS NOT TRUE OR m.node_state = 'offline')
ORDER BY m.machine_id LIMIT 1000;

-- name: LostControllers :many
-- Controllers that hold live sessions while their lease has run out. Holders are found one after the other in the index, so
-- that their sessions are not all read.
WITH RECURSIVE holders AS (
    (SELECT s.controller_id FROM agent_sessions s WHERE s.ended_at IS NULL ORDER BY s.controller_id LIMIT 1)
    UNION ALL
    SELECT coalesce((SELECT s.controller_id FROM agent_sessions s
                     WHERE s.ended_at IS NULL AND s.controller_id > h.controller_id ORDER BY s.controller_id LIMIT 1), '')
    FROM holders h WHERE h.controller_id <> '')
SELECT k.controller_id FROM holders h JOIN controllers k ON k.controller_id = h.controller_id WHERE k.lease_until < @now;

-- name: EndLostSessions :exec
WITH lost AS MATERIALIZED (
    SELECT s.agent_id FROM agent_sessions s WHERE s.ended_at IS NULL AND s.controller_id = ANY(@controller_ids::text[])
    ORDER BY s.agent_id FOR NO KEY UPDATE)
UPDATE agent_sessions s SET ended_at = @now FROM lost WHERE s.agent_id = lost.agent_id;

-- name: MachineCounts :many
-- How many machines there are of each set of facts that the effective state is made of. What they mean is not decided here.
SELECT m.phase, m.node_state, m.region, m.site, (m.current_operation_id IS NOT NULL)::boolean AS operating,
       (m.active_workflow_id IS NOT NULL)::boolean AS in_workflow,
       (m.unresolved_command_id IS NOT NULL)::boolean AS fenced,
       coalesce(c.types, '{}')::text[] AS conditions, count(*) AS machines
FROM machines m LEFT JOIN (
    SELECT k.machine_id, array_agg(k.type ORDER BY k.type) AS types FROM machine_conditions k
    WHERE k.status AND k.type IN ('RMA', 'Retired', 'NeedsIntervention', 'Provisioned', 'Reachable') GROUP BY k.machine_id) c
    ON c.machine_id = m.machine_id
WHERE m.deleted_at IS NULL GROUP BY 1, 2, 3, 4, 5, 6, 7, 8;

-- name: CountByValues :many
-- How many machines there are of each set of values, and of facts that their state is made of where those are asked for. What
-- they mean is not decided here; of the conditions that are asked for each has a bit: a type for those that are true, ?type for those
-- that are unknown. To be planned for its parameters, as WalkMachines. The last row counts none: it says before when
-- what was committed is counted.
WITH counted AS (
    SELECT CASE WHEN cardinality(@group_by::text[]) = 0 THEN '{}' ELSE ARRAY(
               SELECT coalesce(CASE WHEN k.name = 'machine_id' THEN m.machine_id
                                    WHEN k.name = 'image' THEN m.os_image_digest
                                    WHEN k.name = 'rack' THEN rack_of(m.labels, m.spec)
                                    WHEN starts_with(k.name, 'labels.') THEN m.labels ->> substr(k.name, 8)
                                    ELSE m.spec ->> k.name END, '')
               FROM unnest(@group_by::text[]) WITH ORDINALITY AS k(name, nr) ORDER BY k.nr) END::text[] AS group_values,
           CASE WHEN @facts::boolean THEN m.phase ELSE '' END::text AS phase,
           CASE WHEN @facts THEN m.node_state ELSE '' END::text AS node_state,
           (@facts AND m.current_operation_id IS NOT NULL)::boolean AS operating,
           (@facts AND m.active_workflow_id IS NOT NULL)::boolean AS in_workflow,
           (@facts AND m.unresolved_command_id IS NOT NULL)::boolean AS fenced,
           coalesce(c.bits, 0)::integer AS conditions, count(*) AS machines
    FROM machines m LEFT JOIN (
        SELECT k.machine_id, bit_or(1 << (array_position(@conditions::text[], k.type) - 1)) AS bits FROM (
            SELECT x.machine_id, x.type FROM machine_conditions x
            WHERE cardinality(@conditions::text[]) > 0 AND x.status AND x.type = ANY(@conditions::text[])
            UNION ALL SELECT x.machine_id, '?' || x.type FROM machine_conditions x
            WHERE cardinality(@conditions::text[]) > 0 AND NOT x.known AND NOT x.status AND '?' || x.type = ANY(@conditions::text[])) k
        GROUP BY k.machine_id) c
        ON c.machine_id = m.machine_id
    WHERE m.deleted_at IS NULL
      AND (cardinality(@among::text[]) = 0 OR m.machine_id = ANY(@among::text[]))
      AND (@provider::text = '' OR m.provider = @provider)
      AND (@site::text = '' OR m.site = @site)
      AND (@region::text = '' OR m.region = @region)
      AND (@labels::jsonb = '{}' OR m.labels @> @labels::jsonb)
      AND (@spec::jsonb = '{}' OR m.spec @> @spec::jsonb)
      AND (@rack::text = '' OR rack_of(m.labels, m.spec) = @rack)
      AND (cardinality(@keys::text[]) = 0 OR NOT EXISTS (
          SELECT 1 FROM (SELECT unnest(@keys::text[]) AS key, unnest(@regexps::text[]) AS regexp) AS want
          WHERE NOT coalesce(CASE WHEN want.key = 'machine_id' THEN m.machine_id
                                  WHEN want.key = 'image' THEN nullif(m.os_image_digest, '')
                                  WHEN want.key = 'rack' THEN rack_of(m.labels, m.spec)
                                  WHEN starts_with(want.key, 'labels.') THEN m.labels ->> substr(want.key, 8)
                                  ELSE nullif(m.spec ->> want.key, '') END ~ want.regexp, false)))
      AND (cardinality(@not_keys::text[]) = 0 OR NOT EXISTS (
          SELECT 1 FROM (SELECT unnest(@not_keys::text[]) AS key, unnest(@not_regexps::text[]) AS regexp) AS bad
          WHERE CASE WHEN bad.key = 'machine_id' THEN m.machine_id
                     WHEN bad.key = 'image' THEN nullif(m.os_image_digest, '')
                     WHEN bad.key = 'rack' THEN rack_of(m.labels, m.spec)
                     WHEN starts_with(bad.key, 'labels.') THEN m.labels ->> substr(bad.key, 8)
                     ELSE nullif(m.spec ->> bad.key, '') END ~ bad.regexp))
    GROUP BY 1, 2, 3, 4, 5, 6, 7 LIMIT @max_rows)
SELECT group_values, phase, node_state, operating, in_workflow, fenced, conditions, machines,
       statement_timestamp()::timestamptz AS as_of
FROM counted
UNION ALL SELECT '{}', '', '', false, false, false, 0, 0, statement_timestamp();

-- name: MachineGroups :many
-- How many machines stand at each site with the same values of some labels, for budgets that are percentages.
SELECT site, ARRAY(SELECT coalesce(CASE k WHEN 'rack' THEN rack_of(labels, spec) ELSE labels ->> k END, '')
                   FROM unnest(@keys::text[]) AS k)::text[] AS values, count(*) AS machines
FROM machines WHERE deleted_at IS NULL GROUP BY 1, 2;

-- name: ChangesWithin :many
-- The changes of machines in selections, and the departures from them, in one order. The last row has no machine: it is
-- the oldest transaction that was open, and nothing at or above it is in the others. A departure counts where the machine
-- is outside now and has not departed later, so that a reader meets it once.
WITH bound AS (SELECT pg_snapshot_xmin(pg_current_snapshot()) AS xmin)
SELECT p.change_xid, p.machine_id, p.place, p.gone_at FROM ((
    SELECT * FROM (
        SELECT m.change_xid, m.machine_id, m.ctid::text AS place, NULL::timestamptz AS gone_at FROM machines m
        WHERE (m.change_xid, m.machine_id) > (CAST(@after_xid::text AS xid8), @after_id::text)
          AND m.change_xid < (SELECT xmin FROM bound)
          AND (sqlc.narg(since)::timestamptz IS NULL OR m.updated_at >= sqlc.narg(since))
          AND m.deleted_at IS NULL AND in_selections(@selections::jsonb, m.machine_id, m.labels, m.spec, m.os_image_digest)
        UNION ALL
        SELECT d.change_xid, d.machine_id, '', d.changed_at FROM machine_departures d
        JOIN machines m ON m.machine_id = d.machine_id
        WHERE (d.change_xid, d.machine_id) > (CAST(@after_xid::text AS xid8), @after_id::text)
          AND d.change_xid < (SELECT xmin FROM bound)
          AND (sqlc.narg(since)::timestamptz IS NULL OR d.changed_at >= sqlc.narg(since))
          AND in_selections(@selections, d.machine_id, d.labels, d.spec, d.os_image_digest)
          AND (m.deleted_at IS NOT NULL OR NOT in_selections(@selections, m.machine_id, m.labels, m.spec, m.os_image_digest))
          AND NOT EXISTS (
              SELECT 1 FROM machine_departures e
              WHERE e.machine_id = d.machine_id AND e.change_xid > d.change_xid
                AND in_selections(@selections, e.machine_id, e.labels, e.spec, e.os_image_digest))) u
    ORDER BY u.change_xid, u.machine_id LIMIT @page_size)
    UNION ALL SELECT b.xmin, '', '', NULL FROM bound b) p
ORDER BY p.machine_id = '', p.change_xid, p.machine_id;

-- name: OldestLateDeparture :one
-- The safe time of a reader with selections is bounded by departures, too, that have committed and are not handed out yet: the
-- machine's own time may have moved on. A range with two ends, as in ReconcileBounds.
SELECT coalesce(min(late.changed_at), clock_timestamp())::timestamptz AS safe_time FROM (
    SELECT d.changed_at FROM machine_departures d
    WHERE d.change_xid BETWEEN pg_snapshot_xmin(pg_current_snapshot()) AND '18446744073709551615' OFFSET 0) late;

-- name: DeparturesKept :one
SELECT departures_through::text AS through, departures_since FROM cluster_state;

-- name: ForgetDepartures :exec
-- In one statement with the bounds, so that a reader that finds some missing finds the bounds that name them.
WITH old AS (DELETE FROM machine_departures WHERE changed_at < @before RETURNING change_xid)
UPDATE cluster_state SET departures_since = greatest(departures_since, @before),
    departures_through = greatest(departures_through, (SELECT o.change_xid FROM old o ORDER BY o.change_xid DESC LIMIT 1));

-- name: ForgetAllDepartures :exec
WITH old AS (DELETE FROM machine_departures)
UPDATE cluster_state SET departures_through = '0', departures_since = clock_timestamp();

-- name: MachinesInSelections :many
SELECT m.machine_id FROM machines m
WHERE m.machine_id = ANY(@machine_ids::text[]) AND m.deleted_at IS NULL
  AND in_selections(@selections::jsonb, m.machine_id, m.labels, m.spec, m.os_image_digest);

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
