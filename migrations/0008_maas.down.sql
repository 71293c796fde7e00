CREATE OR REPLACE FUNCTION renew_site(name text) RETURNS void LANGUAGE sql AS $$
    UPDATE sites SET revision = revision + 1 WHERE site = name AND segments <> '[]'
$$;
DROP TABLE provider_observations, maas_regions;
