-- MAAS regions, and what providers say of machines.

-- name: PutMAASRegion :one
INSERT INTO maas_regions (region_ref, endpoint, sealed, ca_pem, user_data, retain_machines, updated_at)
VALUES (@region_ref, @endpoint, @sealed, @ca_pem, @user_data, @retain_machines, @now)
ON CONFLICT (region_ref) DO UPDATE
SET endpoint = excluded.endpoint, sealed = excluded.sealed, ca_pem = excluded.ca_pem, user_data = excluded.user_data,
    retain_machines = excluded.retain_machines, version = maas_regions.version + 1, updated_at = excluded.updated_at
RETURNING *;

-- name: GetMAASRegion :one
SELECT * FROM maas_regions WHERE region_ref = @region_ref;

-- name: LockMAASRegion :one
SELECT * FROM maas_regions WHERE region_ref = @region_ref FOR UPDATE;

-- name: ListMAASRegions :many
SELECT * FROM maas_regions WHERE region_ref > @after_ref ORDER BY region_ref LIMIT @page_size;

-- name: DeleteMAASRegion :exec
DELETE FROM maas_regions WHERE region_ref = @region_ref;

-- name: MachineOfMAASRegion :one
SELECT machine_id FROM machines
WHERE deleted_at IS NULL AND provider = 'maas' AND coalesce(nullif(spec ->> 'provider_ref', ''), 'default') = @region_ref::text
ORDER BY machine_id LIMIT 1;

-- name: MAASRegionRefOfMachine :one
-- Only of a machine of the site that MAAS drives.
SELECT coalesce(nullif(spec ->> 'provider_ref', ''), 'default')::text FROM machines
WHERE machine_id = @machine_id AND site = @site AND provider = 'maas' AND deleted_at IS NULL;

-- name: MAASRegionKnown :one
SELECT EXISTS (SELECT 1 FROM maas_regions WHERE region_ref = @region_ref) AS known;

-- name: MAASMachinesOfSite :many
SELECT m.machine_id, coalesce(nullif(m.spec ->> 'provider_ref', ''), 'default')::text AS region_ref,
       coalesce(m.spec ->> 'serial', '')::text AS serial,
       coalesce((SELECT r.version FROM maas_regions r
                 WHERE r.region_ref = coalesce(nullif(m.spec ->> 'provider_ref', ''), 'default')), 0)::bigint AS region_version,
       coalesce((SELECT array_agg(mm.mac::text ORDER BY mm.mac) FROM machine_macs mm WHERE mm.machine_id = m.machine_id), '{}')::text[] AS macs
FROM machines m
WHERE m.site = @site AND m.deleted_at IS NULL AND m.provider = 'maas'
ORDER BY m.machine_id;

-- name: PutProviderObservation :exec
-- The first system id that is seen is the machine's known one, until an operator accepts another.
INSERT INTO provider_observations (machine_id, provider, state, status, system_id, power_state, deployed, drift, reason, message, changed_at,
                                   known_system_id, held_by)
VALUES (@machine_id, @provider, @state, @status, @system_id, @power_state, @deployed, @drift, @reason, @message, @now, @system_id, @held_by)
ON CONFLICT (machine_id) DO UPDATE
SET known_system_id = coalesce(nullif(provider_observations.known_system_id, ''), excluded.system_id), provider = excluded.provider, state = excluded.state, status = excluded.status, system_id = excluded.system_id,
    power_state = excluded.power_state, deployed = excluded.deployed, drift = excluded.drift, reason = excluded.reason,
    message = excluded.message, held_by = excluded.held_by, changed_at = excluded.changed_at,
    set_aside_at = CASE WHEN @judged::boolean THEN NULL ELSE provider_observations.set_aside_at END
WHERE @judged AND provider_observations.set_aside_at IS NOT NULL OR (provider_observations.provider, provider_observations.state, provider_observations.status, provider_observations.system_id,
       provider_observations.power_state, provider_observations.deployed, provider_observations.drift, provider_observations.reason,
       provider_observations.message, provider_observations.held_by)
      IS DISTINCT FROM (excluded.provider, excluded.state, excluded.status, excluded.system_id, excluded.power_state, excluded.deployed,
                        excluded.drift, excluded.reason, excluded.message, excluded.held_by);

-- name: GetProviderObservation :one
SELECT * FROM provider_observations WHERE machine_id = @machine_id;

-- name: ProviderObservationsOf :many
SELECT * FROM provider_observations WHERE machine_id = ANY(@machine_ids::text[]);

-- name: DropProviderObservation :exec
DELETE FROM provider_observations WHERE machine_id = @machine_id;

-- name: SetDrift :exec
-- Whether what the provider says goes with the node's state.
UPDATE provider_observations SET drift = @drift, changed_at = @now WHERE machine_id = @machine_id AND drift <> @drift;

-- name: SetAsideProviderObservation :one
UPDATE provider_observations SET set_aside_at = @now, drift = '' WHERE machine_id = @machine_id RETURNING *;

-- name: AcceptDrift :exec
UPDATE machines SET accepted_drift = @accepted_drift WHERE machine_id = @machine_id;

-- name: KnowSystemID :exec
-- The system id that the provider shows is the machine's from now on.
UPDATE provider_observations SET known_system_id = system_id WHERE machine_id = @machine_id;

-- name: DriftThresholdOf :one
SELECT drift_threshold FROM sites WHERE site = @site;

-- name: SetDriftThreshold :exec
UPDATE sites SET drift_threshold = @drift_threshold WHERE site = @site;
