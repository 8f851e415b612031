"""Home Assistant: each task as a device, announced by MQTT discovery; its sensors read the retained estimate."""

from hush_aggregator.home_assistant.announcing import PREFIX, Announcing

__all__ = ["PREFIX", "Announcing"]
