"""MQTT: the one room that imports aiomqtt and paho, for devices and aggregators."""
