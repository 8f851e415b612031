"""From the outbox to the broker: when each report leaves, and over what."""
