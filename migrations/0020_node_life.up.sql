-- What nodes and workflows remember: failures by stage, whether a machine is clean, where a quarantined node came from.

ALTER TABLE workflows
    -- How many attempts have failed at each stage since the count was begun anew.
    ADD COLUMN failures jsonb   NOT NULL DEFAULT '{}',
    -- A stage that changes the machine was begun, and the workflow has not completed since.
    ADD COLUMN unclean  boolean NOT NULL DEFAULT false;
UPDATE workflows SET failures = jsonb_build_object(stage, repeats) WHERE repeats > 0 AND state NOT IN ('COMPLETED', 'RECONCILED');

ALTER TABLE machines
    -- Of a quarantined node: the state that it was in, and why it was taken out of there.
    ADD COLUMN quarantined_from  text NOT NULL DEFAULT '',
    ADD COLUMN quarantine_reason text NOT NULL DEFAULT '',
    -- Of a node whose installation has failed for good: the plan that it had then.
    ADD COLUMN failed_node_plan  text NOT NULL DEFAULT '',
    -- The provider's state and system id that an operator has accepted although they don't go with the node's state.
    ADD COLUMN accepted_drift    text NOT NULL DEFAULT '';
UPDATE machines m
SET quarantined_from = coalesce((SELECT l.from_state FROM node_state_log l WHERE l.machine_id = m.machine_id AND l.to_state = 'quarantined'
                                 ORDER BY l.id DESC LIMIT 1), 'active'),
    quarantine_reason = coalesce((SELECT c.reason FROM machine_conditions c
                                  WHERE c.machine_id = m.machine_id AND c.type = 'NeedsIntervention' AND c.status), 'MACHINE_QUARANTINED')
WHERE m.node_state = 'quarantined';

-- What a group's nodes must pass before they become active: reachable, inventory, provider.
ALTER TABLE node_groups ADD COLUMN health_checks text[] NOT NULL DEFAULT '{reachable,inventory,provider}';

-- From which drift of a provider on destructive work is refused on a site's machines.
ALTER TABLE sites ADD COLUMN drift_threshold text NOT NULL DEFAULT 'major' CHECK (drift_threshold IN ('any', 'major', 'none'));

-- The system id under which the provider was first seen to have the machine.
ALTER TABLE provider_observations ADD COLUMN known_system_id text NOT NULL DEFAULT '';
UPDATE provider_observations SET known_system_id = system_id;

-- Nodes whose agent is there, and which wait for their health checks.
CREATE INDEX machines_on_their_way_in ON machines (machine_id) WHERE node_state IN ('bootstrap_issued', 'enrolling') AND agent_id IS NOT NULL;
