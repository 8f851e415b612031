"""From an experiment to its outcome: devices, a broker and an aggregator, until every report is counted."""
