"""Plans: what a job costs, how long its answers will be, and the order to run it in."""
