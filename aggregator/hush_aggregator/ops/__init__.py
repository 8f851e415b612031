"""For who runs a service: doctor, watch, metrics, export and copy."""
