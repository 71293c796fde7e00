-- Statistics stay.
SELECT 1;
