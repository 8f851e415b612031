"""The connection to a broker, and the set-up of a mosquitto that serves hush."""
