DROP TABLE phone_homes;
ALTER TABLE machines DROP COLUMN probe_ip;
ALTER TABLE machines DROP COLUMN agentless;
