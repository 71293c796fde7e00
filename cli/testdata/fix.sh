echo fixed
