-- name: MapMachines :many
-- The machines, in parts that are alike in up to four texts and in the facts that their state is made of. What the facts mean is
-- not decided here; of the conditions that are asked for each has a bit. To be planned for its parameters: the keys fall away
-- then. The last row has no machine: it says before when what was committed is in the others.
SELECT key1, key2, key3, key4, phase, node_state, operating, in_workflow, fenced, agentless, conditions, why,
       array_agg(machine_id)::text[] AS machine_ids, statement_timestamp()::timestamptz AS as_of
FROM (
    SELECT m.machine_id,
           coalesce(CASE @key1::text WHEN '' THEN '' WHEN 'machine_id' THEN m.machine_id WHEN 'image' THEN m.os_image_digest
               WHEN 'site' THEN m.site WHEN 'region' THEN m.region WHEN 'provider' THEN m.provider
               ELSE CASE WHEN starts_with(@key1, 'labels.') THEN m.labels ->> substr(@key1, 8)
                         ELSE m.spec ->> @key1::text END END, '')::text AS key1,
           coalesce(CASE @key2::text WHEN '' THEN '' WHEN 'machine_id' THEN m.machine_id WHEN 'image' THEN m.os_image_digest
               WHEN 'site' THEN m.site WHEN 'region' THEN m.region WHEN 'provider' THEN m.provider
               ELSE CASE WHEN starts_with(@key2, 'labels.') THEN m.labels ->> substr(@key2, 8)
                         ELSE m.spec ->> @key2::text END END, '')::text AS key2,
           coalesce(CASE @key3::text WHEN '' THEN '' WHEN 'machine_id' THEN m.machine_id WHEN 'image' THEN m.os_image_digest
               WHEN 'site' THEN m.site WHEN 'region' THEN m.region WHEN 'provider' THEN m.provider
               ELSE CASE WHEN starts_with(@key3, 'labels.') THEN m.labels ->> substr(@key3, 8)
                         ELSE m.spec ->> @key3::text END END, '')::text AS key3,
           coalesce(CASE @key4::text WHEN '' THEN '' WHEN 'machine_id' THEN m.machine_id WHEN 'image' THEN m.os_image_digest
               WHEN 'site' THEN m.site WHEN 'region' THEN m.region WHEN 'provider' THEN m.provider
               ELSE CASE WHEN starts_with(@key4, 'labels.') THEN m.labels ->> substr(@key4, 8)
                         ELSE m.spec ->> @key4::text END END, '')::text AS key4,
           m.phase, m.node_state, (m.current_operation_id IS NOT NULL)::boolean AS operating,
           (m.active_workflow_id IS NOT NULL)::boolean AS in_workflow, (m.unresolved_command_id IS NOT NULL)::boolean AS fenced,
           m.agentless, coalesce(c.bits, 0)::integer AS conditions, coalesce(c.why, '')::text AS why
    FROM machines m LEFT JOIN (
        SELECT k.machine_id, bit_or(1 << (array_position(@conditions::text[], k.type) - 1)) AS bits,
               max(k.reason) FILTER (WHERE k.type = 'NeedsIntervention') AS why
        FROM machine_conditions k WHERE k.status AND k.type = ANY(@conditions::text[]) GROUP BY k.machine_id) c
        ON c.machine_id = m.machine_id
    WHERE m.deleted_at IS NULL
      AND (cardinality(@among::text[]) = 0 OR m.machine_id = ANY(@among::text[]))
      AND (@provider::text = '' OR m.provider = @provider)
      AND (@site::text = '' OR m.site = @site)
      AND (@region::text = '' OR m.region = @region)
      AND (@labels::jsonb = '{}' OR m.labels @> @labels::jsonb)
      AND (@spec::jsonb = '{}' OR m.spec @> @spec::jsonb)
      AND (cardinality(@keys::text[]) = 0 OR NOT EXISTS (
          SELECT 1 FROM (SELECT unnest(@keys::text[]) AS key, unnest(@regexps::text[]) AS regexp) AS want
          WHERE NOT coalesce(CASE WHEN want.key = 'machine_id' THEN m.machine_id
                                  WHEN want.key = 'image' THEN nullif(m.os_image_digest, '')
                                  WHEN starts_with(want.key, 'labels.') THEN m.labels ->> substr(want.key, 8)
                                  ELSE nullif(m.spec ->> want.key, '') END ~ want.regexp, false)))
      AND (cardinality(@not_keys::text[]) = 0 OR NOT EXISTS (
          SELECT 1 FROM (SELECT unnest(@not_keys::text[]) AS key, unnest(@not_regexps::text[]) AS regexp) AS bad
          WHERE CASE WHEN bad.key = 'machine_id' THEN m.machine_id
                                  WHEN bad.key = 'image' THEN nullif(m.os_image_digest, '')
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
               ELSE CASE WHEN starts_with(@key1, 'labels.') THEN w.labels ->> substr(@key1, 8)
                         ELSE w.spec ->> @key1::text END END, '')::text AS key1,
           coalesce(CASE @key2::text WHEN '' THEN '' WHEN 'machine_id' THEN m.machine_id WHEN 'image' THEN s.os_image_digest
               ELSE CASE WHEN starts_with(@key2, 'labels.') THEN w.labels ->> substr(@key2, 8)
                         ELSE w.spec ->> @key2::text END END, '')::text AS key2,
           coalesce(CASE @key3::text WHEN '' THEN '' WHEN 'machine_id' THEN m.machine_id WHEN 'image' THEN s.os_image_digest
               ELSE CASE WHEN starts_with(@key3, 'labels.') THEN w.labels ->> substr(@key3, 8)
                         ELSE w.spec ->> @key3::text END END, '')::text AS key3,
           coalesce(CASE @key4::text WHEN '' THEN '' WHEN 'machine_id' THEN m.machine_id WHEN 'image' THEN s.os_image_digest
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
        FROM (SELECT unnest(s.condition_types) AS type, unnest(s.condition_statuses) AS status,
                     unnest(s.condition_reasons) AS reason) k
        WHERE k.status AND k.type = ANY(@conditions::text[])) c
    WHERE s.deleted_at IS NULL
      AND (cardinality(@keys::text[]) = 0 OR NOT EXISTS (
          SELECT 1 FROM (SELECT unnest(@keys::text[]) AS key, unnest(@regexps::text[]) AS regexp) AS want
          WHERE NOT coalesce(CASE WHEN want.key = 'machine_id' THEN m.machine_id
                                  WHEN want.key = 'image' THEN nullif(s.os_image_digest, '')
                                  WHEN starts_with(want.key, 'labels.') THEN w.labels ->> substr(want.key, 8)
                                  ELSE nullif(w.spec ->> want.key, '') END ~ want.regexp, false)))
      AND (cardinality(@not_keys::text[]) = 0 OR NOT EXISTS (
          SELECT 1 FROM (SELECT unnest(@not_keys::text[]) AS key, unnest(@not_regexps::text[]) AS regexp) AS bad
          WHERE CASE WHEN bad.key = 'machine_id' THEN m.machine_id
                                  WHEN bad.key = 'image' THEN nullif(s.os_image_digest, '')
                                  WHEN starts_with(bad.key, 'labels.') THEN w.labels ->> substr(bad.key, 8)
                                  ELSE nullif(w.spec ->> bad.key, '') END ~ bad.regexp))
    LIMIT @max_machines) f
GROUP BY key1, key2, key3, key4, phase, node_state, operating, in_workflow, fenced, agentless, conditions, why;
