-- When an admin last had a BMC asked again that had refused its credentials.

CREATE TABLE bmc_unparked (
    site        text        NOT NULL,
    endpoint    text        NOT NULL,
    unparked_at timestamptz NOT NULL,
    PRIMARY KEY (site, endpoint)
);

-- A site's document has the BMCs that are looked at, too, whether or not the site serves a segment.
CREATE OR REPLACE FUNCTION machine_renews_site() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    bmc boolean := NEW.spec ->> 'bmc_endpoint' <> '';
BEGIN
    IF TG_OP = 'UPDATE' THEN
        bmc := coalesce(bmc, false) OR OLD.spec ->> 'bmc_endpoint' <> '';
        IF OLD.site <> NEW.site THEN
            PERFORM renew_site(OLD.site);
        END IF;
    END IF;
    PERFORM renew_site(NEW.site);
    IF bmc THEN
        UPDATE sites SET revision = revision + 1
        WHERE segments = '[]' AND (site = NEW.site OR TG_OP = 'UPDATE' AND site = OLD.site);
    END IF;
    RETURN NULL;
END $$;
