"""Connections to a broker over MQTT, and their TLS contexts."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

import aiomqtt

from hush_common.broker_url import BrokerUrl
from hush_common.errors import BrokerError, LoginRefusedError, ProtocolRefusedError, SubscriptionRefusedError
from hush_common.mqtt.client import Inbox, MqttClient, NoWelcomeError
from hush_common.topics import Acknowledgement, Delivery

_CONNECT_SECONDS = 10.0
_BATCH_BYTES = 3 * 1024 * 1024
_REFUSED = 0x80
"""A reason from here on means no, in a subscription's acknowledgement as in any other."""
_WRONG_VERSION = 0x84
_LOGIN = (0x86, 0x87, 0x8A, 0x8C)
"""Bad user name or password, not authorized, banned, bad method."""

_VERSIONS = {"3.1.1": aiomqtt.ProtocolVersion.V311, "5": aiomqtt.ProtocolVersion.V5}


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to connect.

    Args:
        identifier: the MQTT client id. A broker keeps the session of one id for one connection: two that share an id
            throw each other out.
        version: of MQTT. 5 has acknowledgements with reason codes.
        persistent: whether the broker keeps the session while disconnected; only with 3.1.1. Else it begins empty,
            and ends with the connection: under MQTT 5 a clean start, and a session that expires after 0 s.
        will: topic and payload of what the broker publishes, retained, if the connection is lost without a DISCONNECT.
        payload_limit: most bytes of a payload; a longer one comes cut, and still longer than this.
        inbox_messages: messages not taken yet at which no more are read.
        inbox_bytes: their bytes at which no more are read.
        window: most publications in flight.
        patience: seconds to wait for an answer to a publication or a subscription. A broker that is busy with sending
            is not late: the seconds count until a ping that was sent after them is answered.
        ping_every: seconds between two pings.
        silence: seconds in which nothing comes, not even the answer to a ping, after which the connection is lost.
    """

    identifier: str
    version: Literal["3.1.1", "5"] = "3.1.1"
    persistent: bool = False
    will: tuple[str, bytes] | None = None
    payload_limit: int
    inbox_messages: int
    inbox_bytes: int
    window: int
    patience: float
    ping_every: float = 60.0
    silence: float = 60.0


@asynccontextmanager
async def connect(url: BrokerUrl, options: Options) -> AsyncIterator["MqttConnection"]:
    """A connection over MQTT, by TCP, TLS or WebSockets as the address says, for the length of the `async with`.

    Raises:
        BrokerError: (on entering) the broker is not there, refuses the login, or a file for TLS cannot be read.
        ProtocolRefusedError: (likewise) it does not support this version, or did not answer.
    """
    client = await _client(url, options)
    trouble = await _trouble(client, url)
    if trouble is not None:  # raised here, where no chain of causes keeps a half-open socket of paho's alive
        raise trouble
    try:
        yield MqttConnection(client, str(url), options)
    finally:
        await client.close()


class MqttConnection:
    """One connection. Every method raises `BrokerError` once it is lost."""

    def __init__(self, client: MqttClient, name: str, options: Options) -> None:
        self._client = client
        self._name = name
        self._options = options
        self._error: BrokerError | None = None

    def end(self, error: BrokerError) -> None:
        """Treat the connection as lost, for this reason."""
        if not self._client.lost:
            self._error = error
            self._client.fail(error)

    async def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> Acknowledgement:
        """Send at QoS 1, and return when the broker has acknowledged. Calls in order send in order."""
        try:
            reason = await self._client.deliver(topic, payload, retain=retain)
        except TimeoutError:
            why = f"no acknowledgement within {self._options.patience:g} s of a message to {topic}"
            raise BrokerError(self._name, why) from None
        except (aiomqtt.MqttError, ValueError) as error:
            if self._client.lost:
                raise self._lost() from error
            raise BrokerError(self._name, f"could not publish to {topic}: {_explain(error)}") from error
        return Acknowledgement(reason, told=self._options.version == "5")

    async def subscribe(self, *topics: str, qos: int = 1) -> None:
        """Subscribe to these topics or filters; their retained messages follow through `deliveries`.

        Raises:
            SubscriptionRefusedError: the broker forbids one. The connection lives on.
        """
        try:
            codes = await self._client.request(topics, qos)
        except TimeoutError:
            why = f"no answer within {self._options.patience:g} s to the subscription to {topics[0]}"
            raise BrokerError(self._name, why) from None
        except (aiomqtt.MqttError, ValueError) as error:
            if self._client.lost:
                raise self._lost() from error
            raise BrokerError(self._name, f"could not subscribe to {topics[0]}: {_explain(error)}") from error
        for topic, code in zip(topics, codes, strict=False):  # a broker may count as it likes
            if code >= _REFUSED:
                raise SubscriptionRefusedError(
                    self._name, f"the broker refuses the subscription to {topic}; check its access rules"
                )

    @property
    def resumed(self) -> bool:
        """Whether the broker had kept a session for this client id, and goes on with it."""
        return self._client.resumed

    @property
    def waiting(self) -> int:
        """How many messages have come that `deliveries` has not handed over."""
        return len(self._client.inbox)

    @property
    def repeated(self) -> int:
        """How many messages came with a packet id that was in flight already."""
        return self._client.received.repeated

    @property
    def current_until(self) -> float:
        """The newest moment (time of the event loop) for which it is known that all has come that was sent before it.

        Known by the answers to pings; until the first one it is the moment before the connection was opened.
        """
        return self._client.current_until

    def set_aside(self, wanted: str, to: Callable[[str, bytes], object], *, copy: bool = False) -> None:
        """Pass topic and payload of messages that match a filter to `to` at once; it must neither block nor raise.

        With `copy` they are deliveries as well.
        """
        self._client.set_aside(wanted, to, copy=copy)

    async def deliveries(self, most: int) -> list[Delivery]:
        """Wait for a message, then return all received ones in order, at most `most`.

        Cancelling it loses nothing. What was not acknowledged comes again if the session is persistent.
        """
        taken = await self._client.take(most, _BATCH_BYTES)
        if not taken:
            raise self._lost()
        return taken

    def ping(self) -> None:
        """Send a ping; with its answer `current_until` moves."""
        self._client.ping()

    def acknowledge(self, numbers: Iterable[int]) -> None:
        """Acknowledge messages by their numbers, each after those that came before it; nothing if it is lost."""
        self._client.received.acknowledge(numbers)

    def _lost(self) -> BrokerError:
        farewell = self._client.farewell
        if self._error is not None:
            return self._error
        if self._client.is_silent:
            why = f"nothing came for {self._options.silence:g} s, not even the answer to a ping; check the network"
            return BrokerError(self._name, why)
        if self._options.persistent:
            return BrokerError(
                self._name, "the connection was lost, or another client connected with the same client id"
            )
        if farewell is None:
            return BrokerError(self._name, "the connection is lost; what is not acknowledged will be sent again")
        why = f"the broker ended the connection ({farewell.getName().lower()})"
        return BrokerError(self._name, f"{why}; what is not acknowledged will be sent again", reason=farewell.value)


async def _client(url: BrokerUrl, options: Options) -> MqttClient:
    """A new client for every connection: nothing that paho remembers of the last one reaches this one."""
    client = MqttClient(
        url.host,
        url.port,
        username=url.user,
        password=url.password,
        identifier=options.identifier,
        protocol=_VERSIONS[options.version],
        clean_session=None if options.version == "5" else not options.persistent,  # of 5 the first start is clean
        will=None if options.will is None else aiomqtt.Will(*options.will, qos=1, retain=True),
        timeout=_CONNECT_SECONDS,
        window=options.window,
        patience=options.patience,
        ping_every=options.ping_every,
        silence=options.silence,
        tls_context=await asyncio.to_thread(tls_context, url) if url.tls else None,
        transport="tcp" if url.path is None else "websockets",
        websocket_path=url.path,
        inbox=Inbox(options.inbox_messages, options.inbox_bytes),
    )
    client.limit(options.payload_limit, str(url))
    return client


async def _trouble(client: MqttClient, url: BrokerUrl) -> BrokerError | None:
    """Connect; on failure release everything and return the error."""
    name = str(url)
    try:
        await client.open()
    except aiomqtt.MqttCodeError as error:
        code = error.rc
        if code is None or isinstance(code, int):
            return LoginRefusedError(name, f"the broker refuses the login ({error}); check user and password")
        return _refusal(name, code.getName().lower(), code.value)
    except NoWelcomeError as error:
        todo = await asyncio.to_thread(remedy, error, url)
        return ProtocolRefusedError(name, f"cannot connect ({_explain(error)}); {todo}", said=False)
    except (aiomqtt.MqttError, OSError, ValueError) as error:
        todo = await asyncio.to_thread(remedy, error, url)
        return BrokerError(name, f"cannot connect ({_explain(error)}); {todo}")
    return None


def _refusal(name: str, why: str, code: int) -> BrokerError:
    if code == _WRONG_VERSION:
        return ProtocolRefusedError(name, f"the broker refuses this version of MQTT ({why})", said=True)
    if code in _LOGIN:
        return LoginRefusedError(name, f"the broker refuses the login ({why}); check user and password", reason=code)
    return BrokerError(name, f"the broker refuses the connection ({why})", reason=code)


def _explain(error: Exception) -> str:
    """The reason in words, without aiomqtt's codes."""
    text = str(error)
    return text.partition("] ")[2] or text


# What OpenSSL misses in certificates that break RFC 5280, by the number of its error (X509_V_ERR_... in x509_vfy.h).
# Python asks for all of it from 3.13 on (VERIFY_X509_STRICT), and always that an authority may sign.
_MISSED = {
    79: "basicConstraints = critical, CA:TRUE and keyUsage = critical, keyCertSign, cRLSign in the authority's",
    85: "authorityKeyIdentifier = keyid in the broker's, or subjectKeyIdentifier = hash in the authority's",
    86: "subjectKeyIdentifier = hash in the authority's",
    89: "basicConstraints = critical, CA:TRUE in the authority's",
    92: "keyUsage = critical, keyCertSign, cRLSign in the authority's",
}
_RULES = range(79, 94)
_EXPIRED, _NOT_YET_VALID = 10, 9
_UNKNOWN_AUTHORITY, _NAME = (2, 18, 19, 20, 21), (62, 64)
_START = "start the broker, or correct the address"
_GUIDE = 'as docs/device.md shows with openssl under "Certificates of your own"'


def tls_context(url: BrokerUrl) -> ssl.SSLContext | None:
    """What checks the broker's certificate, and shows ours where `url` names one; None without TLS. It reads files.

    Raises:
        BrokerError: a file cannot be read, or is not what it should be.
    """
    if not url.tls:
        return None
    try:
        context = ssl.create_default_context(cafile=url.ca)
    except OSError as error:
        reason = error.strerror or "it is not a certificate"
        raise BrokerError(str(url), f"cannot read ca={url.ca} ({reason}); name a PEM file") from error
    if url.cert is not None:
        _show(context, url, url.cert)
    return context


def remedy(error: BaseException, url: BrokerUrl) -> str:
    """Return what to do about a connection that failed. It reads the file of the authority."""
    cause: BaseException | None = error  # aiomqtt leaves the error of the socket in its context
    while cause is not None and not isinstance(cause, ssl.SSLCertVerificationError):
        cause = cause.__cause__ or cause.__context__
    return _START if cause is None else _remedy_for(cause.verify_code, url)


def _remedy_for(code: int, url: BrokerUrl) -> str:
    """For a certificate that was not accepted."""
    if code in _RULES:
        missed = _MISSED.get(code, "what RFC 5280 asks for")
        return f"the certificates lack {missed}, which Python 3.13 and later require; make them {_GUIDE}"
    if code == _EXPIRED:
        return _remedy_for_expired(url.ca)
    if code == _NOT_YET_VALID:
        return f"set the clock of this machine, which shows {datetime.now(UTC):%Y-%m-%d}"
    if code in _UNKNOWN_AUTHORITY:
        named = f"{url.ca} is another authority; name the one" if url.ca else "name the file of the authority (ca=FILE)"
        return f"{named} that signed the broker's certificate"
    return f"use an address that the broker's certificate has, or sign one for {url.host}" if code in _NAME else _START


def _remedy_for_expired(ca: str | None) -> str:
    """For the authority or the broker: OpenSSL does not say whose certificate has expired."""
    for one in () if ca is None else _certificates(ca):
        ended = datetime.fromtimestamp(ssl.cert_time_to_seconds(str(one["notAfter"])), UTC)
        if ended < datetime.now(UTC):
            return f"the authority in {ca} has expired on {ended:%Y-%m-%d}: renew it {_GUIDE}, and replace that file"
    wrong = f"or the clock of this machine is wrong ({datetime.now(UTC):%Y-%m-%d})"
    return f"the broker's certificate has expired, {wrong}; sign a new one {_GUIDE}"


def _certificates(ca: str) -> Sequence[Mapping[str, object]]:
    """The certificates in a file; none where it cannot be read any more."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(cafile=ca)
    except OSError:
        return []
    return context.get_ca_certs()


def _show(context: ssl.SSLContext, url: BrokerUrl, cert: str) -> None:
    shown = f"cert={cert}" if url.key is None else f"cert={cert} with key={url.key}"
    try:
        context.load_cert_chain(cert, url.key, password=_no_password)
    except ssl.SSLError as error:
        raise BrokerError(
            str(url),
            f"cannot use {shown} (they are not PEM files, do not belong together, or the key is encrypted)"
            "; name a certificate and its unencrypted key",
        ) from error
    except OSError as error:
        raise BrokerError(str(url), f"cannot read {shown} ({error.strerror}); name PEM files") from error


def _no_password() -> bytes:
    """Without this, OpenSSL would ask for a password at the terminal."""
    return b""
