-- Whoever registers a machine asks whether its site has machines of MAAS. Without an index of those alone a site without any was read
-- as a whole.
CREATE INDEX machines_of_maas ON machines (site) WHERE provider = 'maas';
