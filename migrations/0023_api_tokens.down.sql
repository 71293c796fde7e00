DROP INDEX audit_log_by_time;
DROP INDEX audit_log_by_actor;
DROP TABLE api_tokens_version;
DROP TABLE api_tokens;
