SELECT 1; -- the number of another change
