DROP TABLE rollout_machines, rollouts;
