-- The order of names in which numbers count as numbers: r2 before r10. No index uses it, so that another version of ICU may
-- order names otherwise. A server that was built without ICU orders them byte by byte.
DO $$
BEGIN
    CREATE COLLATION natural_order (provider = icu, locale = 'und-u-kn-true');
EXCEPTION WHEN feature_not_supported THEN
    CREATE COLLATION natural_order FROM "C";
END $$;
