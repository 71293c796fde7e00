ALTER TABLE api_tokens DROP COLUMN created_by_identity;
ALTER TABLE rollouts DROP COLUMN created_by_identity;
DROP TABLE sign_on_providers;
DROP TABLE sign_on_sessions;
DROP TABLE role_bindings;
