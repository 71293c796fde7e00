-- name: InsertMachine :exec
INSERT INTO machines (machine_id, external_id, labels, spec, phase, node_state, node_state_changed_at, created_at, registered_by_request)
VALUES (@machine_id, @external_id, @labels, @spec, 'FACTORY_READY', 'discovered', @now, @now, @registered_by_request);

-- name: UpdateMachineSpec :exec
UPDATE machines SET external_id = @external_id, labels = @labels, spec = @spec WHERE machine_id = @machine_id;

-- name: InsertMachineMacs :exec
INSERT INTO machine_macs (mac, machine_id) SELECT unnest(@macs::text[])::macaddr, @machine_id;

-- name: DeleteMachineMacs :exec
DELETE FROM machine_macs WHERE machine_id = @machine_id AND NOT (mac::text = ANY(@keep::text[]));

-- name: MacsInUse :many
SELECT mac::text AS mac, machine_id FROM machine_macs WHERE mac = ANY(CAST(@macs::text[] AS macaddr[]));

-- name: ClaimBMC :exec
-- Until the transaction ends nobody else gives a machine of the site this BMC.
SELECT pg_advisory_xact_lock(hashtextextended('ingot bmc ' || @site::text || ' ' || @bmc::text, 0));

-- name: MachinesAtBMC :many
-- Other machines of the site whose endpoint is one of these spellings.
SELECT machine_id FROM machines
WHERE deleted_at IS NULL AND site = @site AND spec ->> 'bmc_endpoint' <> ''
  AND spec ->> 'bmc_endpoint' = ANY(@spellings::text[]) AND machine_id <> @machine_id::text
ORDER BY machine_id LIMIT 1;

-- name: GetMachine :one
SELECT * FROM machines WHERE machine_id = @machine_id;

-- name: GetMachineByExternalID :one
SELECT * FROM machines WHERE external_id = @external_id;

-- name: LockMachine :one
SELECT * FROM machines WHERE machine_id = @machine_id FOR UPDATE;

-- name: LockMachinesFor :many
-- Those of the machines, and of the machines of the operations, that nobody else has locked.
WITH wanted AS (
    SELECT unnest(@machine_ids::text[]) AS machine_id, ''::text AS operation_id
    UNION ALL
    SELECT o.target_id, o.operation_id FROM operations o WHERE o.operation_id = ANY(@operation_ids::text[]))
SELECT sqlc.embed(m), w.operation_id::text AS operation_id FROM wanted w JOIN machines m ON m.machine_id = w.machine_id
ORDER BY m.machine_id FOR UPDATE OF m SKIP LOCKED;

-- name: LockMachineFor :many
-- The machine, or the machine of the operation, however long it takes.
SELECT * FROM machines WHERE machine_id = coalesce(nullif(@machine_id::text, ''),
    (SELECT o.target_id FROM operations o WHERE o.operation_id = @operation_id::text)) FOR UPDATE;

-- name: ConditionsOf :many
SELECT * FROM machine_conditions WHERE machine_id = ANY(@machine_ids::text[]) ORDER BY machine_id, type;

-- name: TombstoneMachine :exec
UPDATE machines SET deleted_at = @now, node_state = 'deleted', node_state_changed_at = @now, external_id = NULL
WHERE machine_id = @machine_id;

-- name: WalkMachines :many
-- To be planned for its parameters: what is not asked for falls away then.
SELECT m.* FROM machines m CROSS JOIN LATERAL (
    SELECT CASE @order_by::text WHEN 'site' THEN m.site WHEN 'rack' THEN coalesce(rack_of(m.labels, m.spec), '') ELSE '' END
               COLLATE natural_order AS name,
           m.machine_id COLLATE natural_order AS id) k
WHERE m.deleted_at IS NULL AND (@order_by <> '' OR m.machine_id > @after_id)
  AND (@order_by = '' OR @after_id = '' OR
       CASE WHEN @order_by = 'updated_at' AND NOT @descending::boolean THEN (m.updated_at, k.id) > (@after_time::timestamptz, @after_id)
            WHEN @order_by = 'updated_at' THEN (m.updated_at, k.id) < (@after_time, @after_id)
            WHEN @order_by = 'machine_id' AND NOT @descending THEN k.id > @after_id
            WHEN @order_by = 'machine_id' THEN k.id < @after_id
            WHEN NOT @descending THEN (k.name, k.id) > (@after_name::text, @after_id)
            ELSE (k.name, k.id) < (@after_name, @after_id) END)
  AND (@machine_id::text = '' OR m.machine_id = @machine_id)
  AND (@phase::text = '' OR m.phase = @phase)
  AND (@node_state::text = '' OR m.node_state = @node_state)
  AND (@provider::text = '' OR m.provider = @provider)
  AND (@site::text = '' OR m.site = @site)
  AND (@region::text = '' OR m.region = @region)
  AND (@labels::jsonb = '{}' OR m.labels @> @labels::jsonb)
  AND (@spec::jsonb = '{}' OR m.spec @> @spec::jsonb)
  AND (@rack::text = '' OR rack_of(m.labels, m.spec) = @rack)
  AND (@operating::text = '' OR (m.current_operation_id IS NOT NULL) = (@operating::text = 'true'))
  AND (@busy::text = '' OR (m.current_operation_id IS NOT NULL OR m.active_workflow_id IS NOT NULL) = (@busy::text = 'true'))
  AND (@fenced::text = '' OR (m.unresolved_command_id IS NOT NULL) = (@fenced::text = 'true'))
  AND (cardinality(@node_states::text[]) = 0 OR m.node_state = ANY(@node_states::text[]))
  AND (cardinality(@not_node_states::text[]) = 0 OR NOT m.node_state = ANY(@not_node_states::text[]))
  AND (cardinality(@among::text[]) = 0 OR m.machine_id = ANY(@among::text[]))
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
  AND (cardinality(@with_conditions::text[]) = 0 OR NOT EXISTS (
      SELECT 1 FROM unnest(@with_conditions::text[]) AS want(type)
      WHERE NOT EXISTS (SELECT 1 FROM machine_conditions c
                        WHERE c.machine_id = m.machine_id AND c.type = want.type AND c.status)))
  AND (cardinality(@without_conditions::text[]) = 0 OR NOT EXISTS (
      SELECT 1 FROM machine_conditions c
      WHERE c.machine_id = m.machine_id AND c.status AND c.type = ANY(@without_conditions::text[])))
  AND (cardinality(@unknown_conditions::text[]) = 0 OR NOT EXISTS (
      SELECT 1 FROM unnest(@unknown_conditions::text[]) AS want(type)
      WHERE NOT EXISTS (SELECT 1 FROM machine_conditions c
                        WHERE c.machine_id = m.machine_id AND c.type = want.type AND NOT c.known AND NOT c.status)))
  AND (cardinality(@without_unknown::text[]) = 0 OR NOT EXISTS (
      SELECT 1 FROM machine_conditions c
      WHERE c.machine_id = m.machine_id AND NOT c.known AND NOT c.status AND c.type = ANY(@without_unknown::text[])))
  AND (@not_observed::text = '' OR (
      m.phase = 'READY' AND NOT m.node_state = ANY(@settled_states::text[]) AND m.current_operation_id IS NULL
      AND m.active_workflow_id IS NULL AND m.unresolved_command_id IS NULL
      AND EXISTS (SELECT 1 FROM machine_conditions c
                  WHERE c.machine_id = m.machine_id AND c.type = 'Reachable' AND NOT c.known AND NOT c.status)
      AND EXISTS (SELECT 1 FROM machine_conditions c
                  WHERE c.machine_id = m.machine_id AND c.type = 'Provisioned' AND c.status)
      AND NOT EXISTS (SELECT 1 FROM machine_conditions c
                      WHERE c.machine_id = m.machine_id AND c.status AND c.type IN ('RMA', 'Retired', 'NeedsIntervention')))
      = (@not_observed = 'true'))
ORDER BY CASE WHEN @order_by = 'updated_at' AND NOT @descending THEN m.updated_at END,
         CASE WHEN @order_by = 'updated_at' AND @descending THEN m.updated_at END DESC,
         CASE WHEN @order_by IN ('site', 'rack') AND NOT @descending THEN k.name END,
         CASE WHEN @order_by IN ('site', 'rack') AND @descending THEN k.name END DESC,
         CASE WHEN @order_by <> '' AND NOT @descending THEN k.id END,
         CASE WHEN @order_by <> '' AND @descending THEN k.id END DESC,
         m.machine_id LIMIT @page_size;

-- name: SortMachines :many
-- The places of machines in a list, from 1, in an ascending order of WalkMachines. What it does not compare is the same of all.
SELECT m.nr::integer AS nr FROM (
    SELECT unnest(@ids::text[]) AS id, unnest(@names::text[]) AS name, unnest(@times::timestamptz[]) AS at,
           generate_subscripts(@ids::text[], 1) AS nr) m
ORDER BY m.at, m.name COLLATE natural_order, m.id COLLATE natural_order;

-- name: ChangedMachines :many
-- Nothing at or above the oldest transaction that is open when they are found is handed out.
SELECT m.machine_id, m.change_xid, m.ctid::text AS place FROM machines m
WHERE (m.change_xid, m.machine_id) > (CAST(@after_xid::text AS xid8), @after_id::text)
  AND m.change_xid < pg_snapshot_xmin(pg_current_snapshot())
  AND (sqlc.narg(since)::timestamptz IS NULL OR m.updated_at >= sqlc.narg(since))
ORDER BY m.change_xid, m.machine_id LIMIT @page_size;

-- name: ReconcileBounds :one
-- Where a reader that has seen everything visible stands. The safe time is bounded by the oldest open transaction of
-- this database: what it writes may carry any time since it began. It is also bounded by what has committed and is not
-- handed out yet, since an open transaction of another database holds that back as well.
-- A range with two ends, and OFFSET 0, keep it to what is not handed out: the least time of those would be looked for among all
-- machines, in the order of their times, by a database that has no statistics and takes a third of all for what is above one end.
SELECT pg_snapshot_xmin(pg_current_snapshot())::text AS xmin,
       least(oldest_open_transaction(),
             (SELECT min(late.updated_at) FROM (
                  SELECT m.updated_at FROM machines m
                  WHERE m.change_xid BETWEEN pg_snapshot_xmin(pg_current_snapshot()) AND '18446744073709551615' OFFSET 0) late))::timestamptz AS safe_time;

-- name: ClusterIdentity :one
SELECT incarnation, (SELECT system_identifier::text FROM pg_control_system()) AS system_id,
       -- Of what is written now: the control file has the new timeline only after the first checkpoint.
       ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::bigint::text AS timeline
FROM cluster_state;

-- name: SetNodeState :exec
-- A quarantined node keeps the state that it came from, and why, also while it drains.
UPDATE machines
SET node_state = @node_state, node_state_changed_at = @now,
    quarantined_from = CASE WHEN @node_state = 'quarantined' THEN coalesce(nullif(quarantined_from, ''), node_state)
                            WHEN @node_state = 'draining' THEN quarantined_from ELSE '' END,
    quarantine_reason = CASE WHEN @node_state = 'quarantined' THEN coalesce(nullif(@reason::text, ''), quarantine_reason)
                             WHEN @node_state = 'draining' THEN quarantine_reason ELSE '' END
WHERE machine_id = @machine_id;

-- name: SetQuarantineReason :exec
UPDATE machines SET quarantine_reason = @reason WHERE machine_id = @machine_id AND node_state = 'quarantined';

-- name: InsertNodeStateLog :exec
INSERT INTO node_state_log (machine_id, from_state, to_state, triggered_by, user_id, audit_id, metadata, created_at)
VALUES (@machine_id, @from_state, @to_state, @triggered_by, @user_id, @audit_id, @metadata, @now);

-- name: NodeHistory :many
SELECT l.*, coalesce(a.event_data ->> 'comment', '')::text AS remark FROM node_state_log l
LEFT JOIN audit_log a ON a.audit_id = l.audit_id
WHERE l.machine_id = @machine_id ORDER BY l.id DESC LIMIT @page_size OFFSET @skip;

-- name: CountNodeHistory :one
SELECT count(*) FROM node_state_log WHERE machine_id = @machine_id;

-- name: SetMachineAgent :exec
UPDATE machines SET agent_id = @agent_id, boot_id = @boot_id, simulated = @simulated, agentless = false, probe_ip = ''
WHERE machine_id = @machine_id;

-- name: InsertInventory :exec
INSERT INTO inventories (machine_id, reported_at, agent_id, hash, document, simulated)
SELECT @machine_id, @reported_at, @agent_id, @hash, @document, @simulated
WHERE NOT EXISTS (
    SELECT 1 FROM (SELECT hash FROM inventories WHERE machine_id = @machine_id ORDER BY reported_at DESC LIMIT 1) last
    WHERE last.hash = @hash)
ON CONFLICT DO NOTHING;

-- name: LatestInventory :one
SELECT * FROM inventories WHERE machine_id = @machine_id ORDER BY reported_at DESC LIMIT 1;

-- name: NewestInventories :many
SELECT * FROM inventories WHERE machine_id = @machine_id ORDER BY reported_at DESC LIMIT @how_many;

-- name: FrozenSince :one
SELECT frozen_since FROM cluster_state;

-- name: AgentsNotSeenSince :one
-- Agents that have not been heard since a freeze began. A session of before counts while it is open, unless the database
-- has been restored since it began.
SELECT count(*) FROM agents a CROSS JOIN cluster_state c LEFT JOIN agent_sessions s ON s.agent_id = a.agent_id
WHERE s.started_at IS NULL OR s.started_at < c.restored_at
   OR s.last_heartbeat_at < @since::timestamptz AND s.ended_at IS NOT NULL;

-- name: WhoFroze :one
-- Who or what began the freeze of that time, and with what comment.
SELECT actor, verb, coalesce(event_data->>'comment', '')::text AS comment FROM audit_log
WHERE target_id = '' AND verb IN ('FREEZE_FLEET', 'DATABASE_RESTORED', 'DATABASE_WENT_BACK') AND ts = @since
ORDER BY audit_id DESC LIMIT 1;

-- name: Thaw :exec
UPDATE cluster_state SET frozen_since = NULL;

-- name: NewIncarnation :exec
UPDATE cluster_state SET incarnation = replace(gen_random_uuid()::text, '-', ''), frozen_since = @now,
    restored_at = @now, wal_history = @wal_history;

-- name: RestampMachines :exec
-- Change ids of another cluster may lie above every transaction of this one.
UPDATE machines SET change_xid = pg_current_xact_id();

-- name: HardwareTestsOf :many
-- What tests of the machine's hardware have found, the newest first.
SELECT operation_id, outcome, finished_at, evidence FROM commands
WHERE target_id = @machine_id AND kind = 'test_hardware' AND evidence->>'hardware_tests' IS NOT NULL
ORDER BY created_at DESC LIMIT @how_many;

-- name: HardwareTestsOfModel :many
-- The newest test of each other machine of a model, as far as it is among the newest 1,000 of the model.
SELECT DISTINCT ON (n.target_id) n.target_id, n.evidence FROM (
    SELECT c.target_id, c.created_at, c.evidence FROM commands c
    WHERE c.kind = 'test_hardware' AND (c.evidence->>'hardware_model') COLLATE "C" = @model::text AND c.target_id <> @machine_id
    ORDER BY c.created_at DESC LIMIT 1000) n
ORDER BY n.target_id, n.created_at DESC;

-- name: MapMachines :many
-- The machines, in parts that are alike in up to four texts and in the facts that their state is made of. What the facts mean is
-- not decided here; of the conditions that are asked for each has a bit: a type for those that are true, ?type for those that are
-- unknown. To be planned for its parameters: the keys fall away
-- then. The last row has no machine: it says before when what was committed is in the others.
SELECT key1, key2, key3, key4, phase, node_state, operating, in_workflow, fenced, agentless, conditions, why,
       array_agg(machine_id)::text[] AS machine_ids, statement_timestamp()::timestamptz AS as_of
FROM (
    SELECT m.machine_id,
           coalesce(CASE @key1::text WHEN '' THEN '' WHEN 'machine_id' THEN m.machine_id WHEN 'image' THEN m.os_image_digest
               WHEN 'site' THEN m.site WHEN 'region' THEN m.region WHEN 'provider' THEN m.provider
               WHEN 'rack' THEN rack_of(m.labels, m.spec)
               ELSE CASE WHEN starts_with(@key1, 'labels.') THEN m.labels ->> substr(@key1, 8)
                         ELSE m.spec ->> @key1::text END END, '')::text AS key1,
           coalesce(CASE @key2::text WHEN '' THEN '' WHEN 'machine_id' THEN m.machine_id WHEN 'image' THEN m.os_image_digest
               WHEN 'site' THEN m.site WHEN 'region' THEN m.region WHEN 'provider' THEN m.provider
               WHEN 'rack' THEN rack_of(m.labels, m.spec)
               ELSE CASE WHEN starts_with(@key2, 'labels.') THEN m.labels ->> substr(@key2, 8)
                         ELSE m.spec ->> @key2::text END END, '')::text AS key2,
           coalesce(CASE @key3::text WHEN '' THEN '' WHEN 'machine_id' THEN m.machine_id WHEN 'image' THEN m.os_image_digest
               WHEN 'site' THEN m.site WHEN 'region' THEN m.region WHEN 'provider' THEN m.provider
               WHEN 'rack' THEN rack_of(m.labels, m.spec)
               ELSE CASE WHEN starts_with(@key3, 'labels.') THEN m.labels ->> substr(@key3, 8)
                         ELSE m.spec ->> @key3::text END END, '')::text AS key3,
           coalesce(CASE @key4::text WHEN '' THEN '' WHEN 'machine_id' THEN m.machine_id WHEN 'image' THEN m.os_image_digest
               WHEN 'site' THEN m.site WHEN 'region' THEN m.region WHEN 'provider' THEN m.provider
               WHEN 'rack' THEN rack_of(m.labels, m.spec)
               ELSE CASE WHEN starts_with(@key4, 'labels.') THEN m.labels ->> substr(@key4, 8)
                         ELSE m.spec ->> @key4::text END END, '')::text AS key4,
           m.phase, m.node_state, (m.current_operation_id IS NOT NULL)::boolean AS operating,
           (m.active_workflow_id IS NOT NULL)::boolean AS in_workflow, (m.unresolved_command_id IS NOT NULL)::boolean AS fenced,
           m.agentless, coalesce(c.bits, 0)::integer AS conditions, coalesce(c.why, '')::text AS why
    FROM machines m LEFT JOIN (
        SELECT k.machine_id, bit_or(1 << (array_position(@conditions::text[], k.type) - 1)) AS bits,
               max(k.reason) FILTER (WHERE k.type = 'NeedsIntervention') AS why
        FROM (SELECT x.machine_id, x.type, x.reason FROM machine_conditions x WHERE x.status AND x.type = ANY(@conditions::text[])
              UNION ALL SELECT x.machine_id, '?' || x.type, x.reason FROM machine_conditions x
              WHERE NOT x.known AND NOT x.status AND '?' || x.type = ANY(@conditions::text[])) k
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
    LIMIT @max_machines) f
GROUP BY key1, key2, key3, key4, phase, node_state, operating, in_workflow, fenced, agentless, conditions, why
UNION ALL SELECT '', '', '', '', '', '', false, false, false, false, 0, '', '{}', statement_timestamp();

-- name: MapMachinesAt :many
-- The same of the machines of a moment. Each one's state is one step down the index of machine_states, as in MachinesAt.
SELECT key1, key2, key3, key4, phase, node_state, operating, in_workflow, fenced, agentless, conditions, why,
       array_agg(machine_id)::text[] AS machine_ids
FROM (
    SELECT m.machine_id,
           coalesce(CASE @key1::text WHEN '' THEN '' WHEN 'machine_id' THEN m.machine_id WHEN 'image' THEN s.os_image_digest
               WHEN 'rack' THEN rack_of(w.labels, w.spec)
               ELSE CASE WHEN starts_with(@key1, 'labels.') THEN w.labels ->> substr(@key1, 8)
                         ELSE w.spec ->> @key1::text END END, '')::text AS key1,
           coalesce(CASE @key2::text WHEN '' THEN '' WHEN 'machine_id' THEN m.machine_id WHEN 'image' THEN s.os_image_digest
               WHEN 'rack' THEN rack_of(w.labels, w.spec)
               ELSE CASE WHEN starts_with(@key2, 'labels.') THEN w.labels ->> substr(@key2, 8)
                         ELSE w.spec ->> @key2::text END END, '')::text AS key2,
           coalesce(CASE @key3::text WHEN '' THEN '' WHEN 'machine_id' THEN m.machine_id WHEN 'image' THEN s.os_image_digest
               WHEN 'rack' THEN rack_of(w.labels, w.spec)
               ELSE CASE WHEN starts_with(@key3, 'labels.') THEN w.labels ->> substr(@key3, 8)
                         ELSE w.spec ->> @key3::text END END, '')::text AS key3,
           coalesce(CASE @key4::text WHEN '' THEN '' WHEN 'machine_id' THEN m.machine_id WHEN 'image' THEN s.os_image_digest
               WHEN 'rack' THEN rack_of(w.labels, w.spec)
               ELSE CASE WHEN starts_with(@key4, 'labels.') THEN w.labels ->> substr(@key4, 8)
                         ELSE w.spec ->> @key4::text END END, '')::text AS key4,
           s.phase, s.node_state, (s.current_operation_id IS NOT NULL)::boolean AS operating,
           (s.active_workflow_id IS NOT NULL)::boolean AS in_workflow, (s.unresolved_command_id IS NOT NULL)::boolean AS fenced,
           s.agentless, coalesce(c.bits, 0)::integer AS conditions, coalesce(c.why, '')::text AS why
    FROM machines m
    CROSS JOIN LATERAL (SELECT * FROM machine_states x WHERE x.machine_id = m.machine_id AND x.at <= @moment
                        ORDER BY x.at DESC, x.version DESC LIMIT 1) s
    CROSS JOIN LATERAL (SELECT * FROM machine_words y WHERE y.machine_id = s.machine_id AND y.digest = s.said LIMIT 1) w
    CROSS JOIN LATERAL (
        SELECT bit_or(1 << (array_position(@conditions::text[], k.type) - 1)) AS bits,
               max(k.reason) FILTER (WHERE k.type = 'NeedsIntervention') AS why
        FROM (SELECT CASE WHEN x.status THEN x.type ELSE '?' || x.type END AS type, x.reason
              FROM (SELECT unnest(s.condition_types) AS type, unnest(s.condition_statuses) AS status,
                           unnest(s.condition_reasons) AS reason, unnest(s.condition_knowns) AS known) x
              WHERE x.status OR NOT x.known) k
        WHERE k.type = ANY(@conditions::text[])) c
    WHERE s.deleted_at IS NULL
      AND (cardinality(@keys::text[]) = 0 OR NOT EXISTS (
          SELECT 1 FROM (SELECT unnest(@keys::text[]) AS key, unnest(@regexps::text[]) AS regexp) AS want
          WHERE NOT coalesce(CASE WHEN want.key = 'machine_id' THEN m.machine_id
                                  WHEN want.key = 'image' THEN nullif(s.os_image_digest, '')
                                  WHEN want.key = 'rack' THEN rack_of(w.labels, w.spec)
                                  WHEN starts_with(want.key, 'labels.') THEN w.labels ->> substr(want.key, 8)
                                  ELSE nullif(w.spec ->> want.key, '') END ~ want.regexp, false)))
      AND (cardinality(@not_keys::text[]) = 0 OR NOT EXISTS (
          SELECT 1 FROM (SELECT unnest(@not_keys::text[]) AS key, unnest(@not_regexps::text[]) AS regexp) AS bad
          WHERE CASE WHEN bad.key = 'machine_id' THEN m.machine_id
                                  WHEN bad.key = 'image' THEN nullif(s.os_image_digest, '')
                                  WHEN bad.key = 'rack' THEN rack_of(w.labels, w.spec)
                                  WHEN starts_with(bad.key, 'labels.') THEN w.labels ->> substr(bad.key, 8)
                                  ELSE nullif(w.spec ->> bad.key, '') END ~ bad.regexp))
    LIMIT @max_machines) f
GROUP BY key1, key2, key3, key4, phase, node_state, operating, in_workflow, fenced, agentless, conditions, why;
