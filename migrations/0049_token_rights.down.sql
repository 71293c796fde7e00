DROP TABLE people;
DROP INDEX api_tokens_maker;
DROP INDEX api_tokens_parent;
DELETE FROM api_tokens WHERE narrow_hash IS NOT NULL;
ALTER TABLE api_tokens DROP COLUMN narrow_hash;
ALTER TABLE api_tokens DROP COLUMN parent_id;
ALTER TABLE api_tokens DROP COLUMN selection;
