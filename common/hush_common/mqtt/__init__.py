"""MQTT: the one package that knows aiomqtt and paho, for devices and aggregators alike."""

from hush_common.mqtt.connection import MqttConnection, Options, connect

__all__ = ["MqttConnection", "Options", "connect"]
