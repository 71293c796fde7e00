ALTER TABLE agent_certs DROP COLUMN ca_generation;
DROP TABLE certificate_authorities;
