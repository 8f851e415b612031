"""Acknowledgements and messages as the protocol has them, read in paho's stead.

paho ends the connection at whatever it does not know: an acknowledgement with a reason code that the standard has for
other packets (mosquitto answers 0x95 where a message is too large), or a property of a message that it would have
written otherwise. The broker sends the same again at the next connection, so that whoever may retain one message could
lock out all who subscribe to it. Nothing here needs the properties of MQTT 5: their length is read, and they are
skipped. It is faster, too: paho makes a dozen objects of each packet.
"""

from typing import Any

from paho.mqtt.client import MQTTMessage
from paho.mqtt.enums import MQTTErrorCode, MQTTProtocolVersion

__all__ = ["read_incoming"]

_LENGTH_BYTES = 4  # of the length of the properties, at most


def read_incoming(paho: Any, whole: int) -> None:  # noqa: ANN401 - paho's client, which the core lacks
    """Read acknowledgements and messages of QoS 0 and 1 from now on.

    `on_publish` is then called with the reason code as an integer, and without properties.

    Args:
        paho: a client of paho that is not connected yet.
        whole: bytes of a packet from which on it may have been cut: see `hush_common.mqtt.packets`.
    """
    reader = _Reader(paho, whole)
    paho._handle_pubackcomp = reader.acknowledgement  # noqa: SLF001 - by which paho handles them
    paho._handle_publish = reader.message  # noqa: SLF001


class _Reader:
    def __init__(self, paho: Any, whole: int) -> None:  # noqa: ANN401 - paho's client
        self._paho = paho
        self._whole = whole

    @property
    def _has_properties(self) -> bool:
        return bool(self._paho.protocol == MQTTProtocolVersion.MQTTv5)

    def acknowledgement(self, _kind: str) -> MQTTErrorCode:
        """A PUBACK: a number, and under MQTT 5 perhaps a reason and properties."""
        paho, packet = self._paho, self._paho._in_packet["packet"]  # noqa: SLF001
        if len(packet) < 2 or (len(packet) > 2 and not self._has_properties):  # noqa: PLR2004 - bytes of the number
            return MQTTErrorCode.MQTT_ERR_PROTOCOL
        number = int.from_bytes(packet[:2], "big")
        reason = packet[2] if len(packet) > 2 else 0  # noqa: PLR2004 - likewise
        with paho._out_message_mutex:  # noqa: SLF001
            if number in paho._out_messages:  # noqa: SLF001
                return MQTTErrorCode(paho._do_on_publish(number, reason, None))  # noqa: SLF001
        return MQTTErrorCode.MQTT_ERR_SUCCESS

    def message(self) -> MQTTErrorCode:
        """A PUBLISH: topic, number at QoS 1, under MQTT 5 properties, payload."""
        came = self._paho._in_packet  # noqa: SLF001
        head, packet = came["command"], came["packet"]
        qos, length = (head & 0x06) >> 1, int.from_bytes(packet[:2], "big")
        payload = 2 + length + (2 if qos else 0)
        if qos > 1 or not length or len(packet) < payload:
            return MQTTErrorCode.MQTT_ERR_PROTOCOL
        message = MQTTMessage(int.from_bytes(packet[2 + length : payload], "big"), bytes(packet[2 : 2 + length]))
        if self._has_properties:
            after = _after_properties(packet, payload)
            if after is None and came["remaining_length"] <= self._whole:
                return MQTTErrorCode.MQTT_ERR_PROTOCOL
            payload = after or payload  # of a packet that was cut within them, all that is left: no legal payload
        message.qos, message.retain, message.payload = qos, bool(head & 1), bytes(packet[payload:])
        self._paho._handle_on_message(message)  # noqa: SLF001
        return MQTTErrorCode.MQTT_ERR_SUCCESS


def _after_properties(packet: bytearray, start: int) -> int | None:
    """Where the payload begins; None if the properties do not end in this packet."""
    length = 0
    for place, byte in enumerate(packet[start : start + _LENGTH_BYTES]):
        length |= (byte & 0x7F) << 7 * place
        if byte < 0x80:  # noqa: PLR2004 - the last byte of a length
            after = start + place + 1 + length
            return after if after <= len(packet) else None
    return None
