"""How many people, at which epsilon, with which mechanism: before anybody is asked."""
