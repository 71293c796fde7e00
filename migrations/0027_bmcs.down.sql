DROP TABLE bmc_unparked;

CREATE OR REPLACE FUNCTION machine_renews_site() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM renew_site(NEW.site);
    IF TG_OP = 'UPDATE' AND OLD.site <> NEW.site THEN
        PERFORM renew_site(OLD.site);
    END IF;
    RETURN NULL;
END $$;
