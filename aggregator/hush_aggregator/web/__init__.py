"""HTTP: tasks, results and refusals of a store, for operators and for the people whose data it is."""
