"""What comes in: runs of whole packets are read here, everything else by paho.

paho makes three calls of the system and a dozen Python calls for each packet. Here one call of the system reads what
has come, and one loop splits it into messages. Packets of other kinds, and those longer than a piece, are left to
paho, which reads them from the same bytes.

paho also ends the connection at whatever it does not know: an acknowledgement with a reason code that the standard has
for other packets (mosquitto answers 0x95 where a message is too large), or a property of a message that it would have
written otherwise. The broker sends the same again on the next connection, so that anybody who may retain one message
could lock out all who subscribe to it. Nothing here needs the properties of MQTT 5: their length is read, and they are
skipped.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from paho.mqtt.enums import MQTTErrorCode, MQTTProtocolVersion

__all__ = ["Incoming", "Message"]

_PIECE = 64 * 1024
_PUBLISH, _PUBACK, _KIND, _QOS_1, _QOS_2 = 0x30, 0x40, 0xF0, 0x02, 0x04
_SEVEN_BITS = 0x7F  # of a length, in each byte
_LENGTH_BYTES = 4  # of a length, at most
_NUMBER_BYTES = 2


class Message(NamedTuple):
    """A message as it came.

    Args:
        topic: unchecked bytes.
        packet_id: two bytes; none at QoS 0.
        payload: unchecked bytes.
    """

    topic: bytes
    packet_id: bytes
    payload: bytes


class Incoming:
    """Reads for one connection, instead of paho.

    Not ahead over a WebSocket, which buffers what it has read itself.

    Args:
        paho: a client of paho that is not connected yet, after `hush_common.mqtt.packets.limit_packets`.
        whole: bytes of a packet from which on it may have been cut by that.
        check: returned by that.
        messages: called with messages of QoS 0 and 1, in order.
        acknowledged: called with the packet id of each PUBACK, and its reason code.

    Attributes:
        has_read: whether anything was read since this was last set to False.
    """

    def __init__(
        self,
        paho: Any,  # noqa: ANN401 - paho's client, which the core lacks
        whole: int,
        check: Callable[[], None],
        *,
        messages: Callable[[list[Message]], object],
        acknowledged: Callable[[int, int], object],
    ) -> None:
        self._paho = paho
        self._whole = whole
        self._check = check
        self._messages = messages
        self._acknowledged = acknowledged
        self._receive = paho._sock_recv  # noqa: SLF001 - by which paho reads everything
        self._piece = 0 if paho._transport == "websockets" else _PIECE  # noqa: SLF001
        self._kept = b""
        self._at = 0
        self._handed = 0  # grows whenever anything is read, or handed to paho
        self.has_read: bool = False
        paho._sock_recv = self._for_paho  # noqa: SLF001
        paho._handle_pubackcomp = self._paho_acknowledgement  # noqa: SLF001 - by which paho handles them
        paho._handle_publish = self._paho_message  # noqa: SLF001

    def advance(self) -> bool:
        """Read one piece of what has come, and hand on the packets in it. Return whether more may have come."""
        if not self._piece:
            return self._one_packet()
        handed = self._handed
        if not self._paho._in_packet["command"]:  # noqa: SLF001 - else paho has begun to read a packet
            try:
                piece = self._receive(self._piece)
            except BlockingIOError:
                return False
            except OSError:  # paho runs into it too, and ends the connection
                piece = b""
            if not piece:
                self._paho.loop_read()
                return False
            self.has_read = True
            self._handed += 1
            self._kept = self._kept[self._at :] + piece if self._at < len(self._kept) else piece
            self._at = 0
        self._split()
        return self._handed != handed and self._paho.socket() is not None

    def _one_packet(self) -> bool:
        handed = self._handed
        self._paho.loop_read()
        return self._handed != handed and self._paho.socket() is not None

    def _split(self) -> None:
        """Hand on the packets in what was read. The beginning of one stays, unless paho has to begin with it."""
        while self._paho.socket() is not None:
            if not self._paho._in_packet["command"]:  # noqa: SLF001
                if messages := self._run_of_messages():
                    self._messages(messages)
                if self._run_of_acknowledgements():
                    continue
                if self._is_incomplete():
                    return
            handed = self._handed
            self._paho.loop_read()
            if self._handed == handed:
                return

    def _run_of_messages(self) -> list[Message]:
        """Return the messages at the front, as many as there are whole."""
        kept, at, size, whole = self._kept, self._at, len(self._kept), self._whole
        has_properties = self._has_properties
        messages: list[Message] = []
        add, make = messages.append, tuple.__new__
        while at + 2 <= size:
            head, length = kept[at], kept[at + 1]
            if head & _KIND != _PUBLISH or head & _QOS_2:
                break
            start = at + 2
            if length > _SEVEN_BITS:
                if start >= size or kept[start] > _SEVEN_BITS:
                    break  # longer than 16 KiB, or not there yet
                length = length & _SEVEN_BITS | kept[start] << 7
                start += 1
            end = start + length
            if end > size or length < _NUMBER_BYTES or length > whole:
                break
            after_topic = start + 2 + (kept[start] << 8 | kept[start + 1])
            payload = after_topic + _NUMBER_BYTES if head & _QOS_1 else after_topic
            if payload > end or after_topic == start + 2:
                break  # invalid: paho's way ends the connection
            if has_properties:
                after = _after_properties(kept, payload, end)
                if after is None:
                    break
                add(make(Message, (kept[start + 2 : after_topic], kept[after_topic:payload], kept[after:end])))
            else:
                add(make(Message, (kept[start + 2 : after_topic], kept[after_topic:payload], kept[payload:end])))
            at = end
        self._at = at
        return messages

    def _run_of_acknowledgements(self) -> int:
        """Hand on the acknowledgements at the front, as many as there are whole; return how many those are."""
        kept, at, size = self._kept, self._at, len(self._kept)
        count = 0
        while at + 2 + _NUMBER_BYTES <= size and kept[at] == _PUBACK:
            length = kept[at + 1]
            end = at + 2 + length
            if end > size or length > _SEVEN_BITS or length < _NUMBER_BYTES:
                break
            if length > _NUMBER_BYTES and not self._has_properties:
                break  # invalid: paho's way ends the connection
            reason = kept[at + 2 + _NUMBER_BYTES] if length > _NUMBER_BYTES else 0
            self._at = at = end
            self._acknowledged(kept[end - length] << 8 | kept[end - length + 1], reason)
            count += 1
        return count

    def _is_incomplete(self) -> bool:
        """Return whether what is left is the beginning of a packet that fits into a piece, or nothing."""
        kept, at = self._kept, self._at
        length = 0
        for place in range(_LENGTH_BYTES):
            if at + 1 + place >= len(kept):
                return True
            byte = kept[at + 1 + place]
            length |= (byte & _SEVEN_BITS) << 7 * place
            if byte <= _SEVEN_BITS:
                return length <= self._piece and at + 2 + place + length > len(kept)
        return False

    # What paho reads

    def _for_paho(self, size: int) -> bytes:
        """Return the next bytes, at most `size`; none at the end of the connection.

        Raises:
            OSError: as the socket does, `BlockingIOError` where nothing has come.
        """
        self._check()
        if self._at == len(self._kept):
            self._kept, self._at = b"", 0
            received = bytes(self._receive(max(size, self._piece)))
            if received:
                self.has_read = True
                self._handed += 1
            if len(received) <= size:
                return received
            self._kept = received
        data = self._kept[self._at : self._at + size]
        self._at += len(data)
        self._handed += len(data)
        return data

    @property
    def _has_properties(self) -> bool:
        return bool(self._paho._protocol == MQTTProtocolVersion.MQTTv5)  # noqa: SLF001

    def _paho_acknowledgement(self, _kind: str) -> MQTTErrorCode:
        """Handle a PUBACK: a number, and under MQTT 5 perhaps a reason and properties."""
        packet = self._paho._in_packet["packet"]  # noqa: SLF001
        if len(packet) < _NUMBER_BYTES or (len(packet) > _NUMBER_BYTES and not self._has_properties):
            return MQTTErrorCode.MQTT_ERR_PROTOCOL
        reason = packet[_NUMBER_BYTES] if len(packet) > _NUMBER_BYTES else 0
        self._acknowledged(int.from_bytes(packet[:_NUMBER_BYTES], "big"), reason)
        return MQTTErrorCode.MQTT_ERR_SUCCESS

    def _paho_message(self) -> MQTTErrorCode:
        """Handle a PUBLISH: topic, number at QoS 1, under MQTT 5 properties, payload."""
        came = self._paho._in_packet  # noqa: SLF001
        head, packet = came["command"], bytes(came["packet"])
        qos, length = (head & 0x06) >> 1, int.from_bytes(packet[:2], "big")
        payload = 2 + length + (_NUMBER_BYTES if qos else 0)
        if qos > 1 or not length or len(packet) < payload:
            return MQTTErrorCode.MQTT_ERR_PROTOCOL
        packet_id = packet[2 + length : payload]
        if self._has_properties:
            after = _after_properties(packet, payload, len(packet))
            if after is None and came["remaining_length"] <= self._whole:
                return MQTTErrorCode.MQTT_ERR_PROTOCOL
            payload = after or payload  # of a packet that was cut within them, all that is left: an invalid payload
        self._messages([Message(packet[2 : 2 + length], packet_id, packet[payload:])])
        return MQTTErrorCode.MQTT_ERR_SUCCESS


def _after_properties(packet: bytes, start: int, end: int) -> int | None:
    """Return where the payload begins; None if the properties do not end in this packet."""
    length = 0
    for place in range(min(_LENGTH_BYTES, end - start)):
        byte = packet[start + place]
        length |= (byte & _SEVEN_BITS) << 7 * place
        if byte <= _SEVEN_BITS:
            after = start + place + 1 + length
            return after if after <= end else None
    return None
