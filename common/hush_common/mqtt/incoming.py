"""Acknowledgements and messages as the protocol has them, read in paho's stead.

paho ends the connection at whatever it does not know: an acknowledgement with a reason code that the standard has for
other packets (mosquitto answers 0x95 where a message is too large), or a property of a message that it would have
written otherwise. The broker sends the same again at the next connection, so that whoever may retain one message could
lock out all who subscribe to it. Nothing here needs the properties of MQTT 5: their length is read, and they are
skipped. It is faster, too: paho makes a dozen objects of each packet.
"""

from dataclasses import dataclass
from time import monotonic
from typing import Any

from paho.mqtt.enums import MQTTErrorCode, MQTTProtocolVersion

from hush_common.mqtt.ahead import ReadAhead

__all__ = ["Message", "read_incoming", "read_whole"]

_PUBLISH, _PUBACK, _KIND, _QOS_2 = 0x30, 0x40, 0xF0, 0x04
_COMMON = {(_PUBLISH, 0), (_PUBACK, 0)}
_SEVEN_BITS = 0x7F  # of a length, in each byte
_LENGTH_BYTES = 4  # of the length of the properties, at most


def read_incoming(paho: Any, whole: int) -> None:  # noqa: ANN401 - paho's client, which the core lacks
    """Read acknowledgements and messages of QoS 0 and 1 from now on.

    `on_publish` is then called with the reason code as an integer, and without properties; `on_message` with a
    `Message`.

    Args:
        paho: a client of paho that is not connected yet.
        whole: bytes of a packet from which on it may have been cut: see `hush_common.mqtt.packets`.
    """
    reader = _Reader(paho, whole)
    paho._handle_pubackcomp = reader.acknowledgement  # noqa: SLF001 - by which paho handles them
    paho._handle_publish = reader.message  # noqa: SLF001


def read_whole(paho: Any, ahead: ReadAhead, whole: int) -> None:  # noqa: ANN401 - likewise
    """Read likewise, and where a packet has come whole without the work that paho does for each piece of one.

    Args:
        paho: a client after `read_incoming`.
        ahead: of the same.
        whole: as there.
    """
    paho._packet_read = _WholePackets(paho, ahead, whole)  # noqa: SLF001 - by which paho reads every packet


@dataclass(slots=True)
class Message:
    """A message as it came.

    Args:
        mid: its number; 0 at QoS 0.
        name: the topic.
        payload: the payload.
        qos: 0 or 1.
    """

    mid: int
    name: bytes
    payload: bytes
    qos: int

    @property
    def topic(self) -> str:
        """The topic.

        Raises:
            UnicodeDecodeError: it is none.
        """
        return self.name.decode()


class _Reader:
    def __init__(self, paho: Any, whole: int) -> None:  # noqa: ANN401 - paho's client
        self._paho = paho
        self._whole = whole

    @property
    def _has_properties(self) -> bool:
        return bool(self._paho._protocol == MQTTProtocolVersion.MQTTv5)  # noqa: SLF001

    def acknowledgement(self, _kind: str) -> MQTTErrorCode:
        """A PUBACK: a number, and under MQTT 5 perhaps a reason and properties."""
        return self._acknowledgement(self._paho._in_packet["packet"])  # noqa: SLF001

    def message(self) -> MQTTErrorCode:
        """A PUBLISH: topic, number at QoS 1, under MQTT 5 properties, payload."""
        came = self._paho._in_packet  # noqa: SLF001
        return self._message(came["command"], came["packet"], came["remaining_length"])

    def _acknowledgement(self, packet: bytes | bytearray) -> MQTTErrorCode:
        if len(packet) < 2 or (len(packet) > 2 and not self._has_properties):  # noqa: PLR2004 - bytes of the number
            return MQTTErrorCode.MQTT_ERR_PROTOCOL
        reason = packet[2] if len(packet) > 2 else 0  # noqa: PLR2004 - likewise
        self._paho.on_publish(self._paho, None, int.from_bytes(packet[:2], "big"), reason, None)
        return MQTTErrorCode.MQTT_ERR_SUCCESS

    def _message(self, head: int, packet: bytes | bytearray, came: int) -> MQTTErrorCode:
        """From the first byte, the rest as far as it was kept, and how long it was."""
        qos, length = (head & 0x06) >> 1, int.from_bytes(packet[:2], "big")
        payload = 2 + length + (2 if qos else 0)
        if qos > 1 or not length or len(packet) < payload:
            return MQTTErrorCode.MQTT_ERR_PROTOCOL
        number, name = int.from_bytes(packet[2 + length : payload], "big"), bytes(packet[2 : 2 + length])
        if self._has_properties:
            after = _after_properties(packet, payload)
            if after is None and came <= self._whole:
                return MQTTErrorCode.MQTT_ERR_PROTOCOL
            payload = after or payload  # of a packet that was cut within them, all that is left: no legal payload
        self._paho.on_message(self._paho, None, Message(number, name, bytes(packet[payload:]), qos))
        return MQTTErrorCode.MQTT_ERR_SUCCESS


class _WholePackets(_Reader):
    """Reads one packet at each call, in the stead of a method of paho's, which reads what has not come whole."""

    def __init__(self, paho: Any, ahead: ReadAhead, whole: int) -> None:  # noqa: ANN401 - paho's client
        super().__init__(paho, whole)
        self._ahead = ahead
        self._piecemeal = paho._packet_read  # noqa: SLF001

    def __call__(self) -> MQTTErrorCode:
        """Read a packet, or as much of it as has come."""
        paho, ahead = self._paho, self._ahead
        if not paho._in_packet["command"] and self._has_come():  # noqa: SLF001 - else paho has begun to read one
            kept, start = ahead.kept, ahead.at + 2
            head, length = kept[start - 2], kept[start - 1]
            if length > _SEVEN_BITS:
                second, start = kept[start : start + 1], start + 1
                short = second != b"" and second[0] <= _SEVEN_BITS
                length = length & _SEVEN_BITS | second[0] << 7 if short else self._whole + 1  # by pieces, if longer
            end = start + length
            if end <= len(kept) and length <= self._whole and (head & _KIND, head & _QOS_2) in _COMMON:
                ahead.at = end
                paho._last_bytes_received = monotonic()  # noqa: SLF001 - by which paho knows that the broker lives
                if head & _KIND == _PUBLISH:
                    return self._message(head, kept[start:end], length)
                return self._acknowledgement(kept[start:end])
        return MQTTErrorCode(self._piecemeal())

    def _has_come(self) -> bool:
        """Whether the beginning of a packet is there."""
        try:
            self._ahead.fill()
        except OSError:  # paho finds out which, or reads what has come meanwhile
            return False
        return self._ahead.at + 2 <= len(self._ahead.kept)


def _after_properties(packet: bytes | bytearray, start: int) -> int | None:
    """Where the payload begins; None if the properties do not end in this packet."""
    length = 0
    for place, byte in enumerate(packet[start : start + _LENGTH_BYTES]):
        length |= (byte & 0x7F) << 7 * place
        if byte < 0x80:  # noqa: PLR2004 - the last byte of a length
            after = start + place + 1 + length
            return after if after <= len(packet) else None
    return None
