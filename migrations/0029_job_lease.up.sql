-- Until when a controller's jobs count as worked on. A version that renews no such lease leaves it at -infinity.

ALTER TABLE controllers ADD COLUMN jobs_until timestamptz NOT NULL DEFAULT '-infinity';
