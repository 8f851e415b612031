// A small MQTT 3.1.1 client: QoS 1, clean sessions, keep alive. Everything that must survive is in the device's storage.
//
// A socket is made by `open({ onData, onClose })`, a promise of { send(bytes), close() }; `webSocketTo` and, in node,
// `socketTo` give such functions. What a broker sends that is not MQTT ends the connection, and nothing else.
import { HushError, hex, need, systemRandom } from "./numbers.js";

const MOST_BYTES = 1 << 20; // of one packet
const CONNECT_MS = 10000, ACKNOWLEDGE_MS = 30000;
const REFUSALS = ["", "it does not speak MQTT 3.1.1", "it does not accept the client id", "it is not available",
  "the user or the password is wrong", "this user may not connect"];
const CONNACK = 2, PUBLISH = 3, PUBACK = 4, SUBACK = 9, PINGRESP = 13;

const utf8 = new TextEncoder();
const text = (value) => {
  const bytes = utf8.encode(value);
  need(bytes.length < 65536, "argument", "a text of MQTT has at most 65535 bytes");
  return [bytes.length >> 8, bytes.length & 255, ...bytes];
};
function packet(first, ...parts) {
  const size = parts.reduce((total, part) => total + part.length, 0), head = [first];
  for (let left = size; ; left >>= 7) {
    head.push(left > 127 ? (left & 127) | 128 : left);
    if (left <= 127) break;
  }
  const out = new Uint8Array(head.length + size);
  let at = head.length;
  out.set(head);
  for (const part of parts) {
    out.set(part, at);
    at += part.length;
  }
  return out;
}

/** Call a function of the program. Its mistakes end nothing here; they are not reported, for they may contain a value. */
export function notify(callback, ...words) {
  try {
    Promise.resolve(callback(...words)).catch(() => {});
  } catch {
    // as above
  }
}

/** One connection. `closed` is a promise of the HushError "network" that ended it. */
class Connection {
  constructor(onMessage, keepAlive) {
    this.closed = new Promise((resolve) => (this.end = resolve));
    this.onMessage = onMessage;
    this.keepAlive = keepAlive * 1000;
    this.pending = new Map(); // by packet id, what resolves and rejects it
    this.bytes = new Uint8Array(0);
    this.id = 0;
    this.sent = this.received = Date.now();
    this.accepted = new Promise((resolve, reject) => (this.greeting = { resolve, reject }));
    this.accepted.catch(() => {});
  }

  send(bytes) {
    if (!this.error) this.socket.send(bytes);
    this.sent = Date.now();
  }

  close(why = "it was closed") {
    if (this.error) return;
    this.error = why instanceof HushError ? why : new HushError("network", why);
    clearInterval(this.timer);
    this.greeting.reject(this.error);
    for (const { reject } of this.pending.values()) reject(this.error);
    this.pending.clear();
    this.socket?.close();
    this.end(this.error);
  }

  receive(data) {
    if (this.error) return;
    const all = new Uint8Array(this.bytes.length + data.length);
    all.set(this.bytes);
    all.set(data, this.bytes.length);
    this.bytes = all;
    this.received = Date.now();
    try {
      while (this.readPacket());
    } catch (error) {
      this.close(error instanceof HushError ? error : `the broker sent what is not MQTT: ${error}`);
    }
  }

  readPacket() {
    const { bytes } = this;
    let size = 0, at = 1;
    for (let shift = 0; ; shift += 7, at++) {
      if (at >= bytes.length) return false;
      size |= (bytes[at] & 127) << shift;
      need(shift < 21 || bytes[at] < 128, "network", "the broker sent what is not MQTT: a length");
      if (bytes[at] < 128) break;
    }
    at++;
    need(size <= MOST_BYTES, "network", `the broker sent a packet of ${size} bytes`);
    if (bytes.length < at + size) return false;
    this.bytes = bytes.slice(at + size);
    this.handle(bytes[0] >> 4, bytes[0] & 15, bytes.slice(at, at + size));
    return !this.error;
  }

  handle(type, flags, body) {
    const isRight = (condition) => need(condition, "network", `the broker sent what is not MQTT: a packet of type ${type}`);
    const word = (at) => (body[at] << 8) | body[at + 1];
    isRight(type === PUBLISH || flags === 0);
    isRight(type === CONNACK ? !this.isOpen : this.isOpen);
    if (type === CONNACK) {
      isRight(body.length === 2 && body[0] === 0); // a clean session is never present
      if (body[1]) return this.close(`the broker refuses: ${REFUSALS[body[1]] ?? `reason ${body[1]}`}`);
      this.isOpen = true;
      return this.greeting.resolve();
    }
    if (type === PUBACK || type === SUBACK) {
      isRight(type === PUBACK ? body.length === 2 : body.length === 3);
      const id = word(0), waits = this.pending.get(id);
      if (waits?.type !== type) return undefined;
      this.pending.delete(id);
      if (type === SUBACK && body[2] > 2) {
        isRight(body[2] === 128);
        return waits.reject(new HushError("forbidden", "the broker forbids this subscription"));
      }
      return waits.resolve();
    }
    if (type === PINGRESP) {
      isRight(body.length === 0);
      this.isPinging = false;
      return undefined;
    }
    isRight(type === PUBLISH && body.length >= 2);
    const quality = (flags >> 1) & 3, start = 2 + word(0), payload = start + (quality ? 2 : 0);
    isRight(quality < 2 && body.length >= payload && (!quality || word(start) > 0));
    const topic = new TextDecoder("utf-8", { fatal: true }).decode(body.slice(2, start));
    isRight(topic && !/[+#\0]/.test(topic));
    notify(this.onMessage, topic, body.slice(payload), (flags & 1) === 1);
    if (quality) this.send(packet(0x40, body.slice(start, start + 2)));
    return undefined;
  }

  /** Send a packet with an id, and wait for its acknowledgement. */
  ask(type, first, ...parts) {
    return new Promise((resolve, reject) => {
      if (this.error) throw this.error;
      do this.id = (this.id % 65535) + 1; while (this.pending.has(this.id));
      this.pending.set(this.id, { type, resolve, reject, at: Date.now() });
      const id = [this.id >> 8, this.id & 255];
      this.send(packet(first, ...(type === SUBACK ? [id, ...parts] : [parts[0], id, parts[1]])));
    });
  }

  /** Publish at QoS 1; resolves when the broker has acknowledged it. */
  publish(topic, payload) {
    return this.ask(PUBACK, 0x32, text(topic), payload);
  }

  /** Subscribe at QoS 1; rejects with a HushError "forbidden" if the broker's rules forbid it. */
  subscribe(topic) {
    return this.ask(SUBACK, 0x82, text(topic), [1]);
  }

  check() {
    const now = Date.now(), [oldest] = this.pending.values();
    if (oldest && now - oldest.at > ACKNOWLEDGE_MS) this.close("the broker does not acknowledge");
    else if (now - this.received > 1.5 * this.keepAlive) this.close("the broker does not answer");
    else if (!this.isPinging && now - Math.min(this.sent, this.received) > 0.7 * this.keepAlive) {
      this.isPinging = true;
      this.send(packet(0xc0));
    }
  }
}

/**
 * Connect: `open` makes the socket; `onMessage(topic, payload, isRetained)` gets what comes. `name` begins the client
 * id, which is different for every connection. Rejects with a HushError "network".
 */
export async function connect(open, { onMessage, name = "hush", username, password, keepAlive = 60 }) {
  const connection = new Connection(onMessage, keepAlive);
  const late = setTimeout(() => connection.close("the broker does not answer"), CONNECT_MS);
  try {
    const onData = (data) => connection.receive(data), onClose = (why) => connection.close(why);
    const opening = open({ onData, onClose });
    opening.then((socket) => connection.error && socket.close(), () => {});
    connection.socket = await Promise.race([opening, connection.closed.then((error) => { throw error; })]);
    const flags = 2 | (username === undefined ? 0 : 0x80) | (password === undefined ? 0 : 0x40);
    const login = [username, password].filter((it) => it !== undefined).flatMap(text);
    const client = text(`${name.slice(0, 100)}-${hex(systemRandom(6))}`);
    connection.send(packet(0x10, text("MQTT"), [4, flags, keepAlive >> 8, keepAlive & 255], client, login));
    await connection.accepted;
    connection.timer = setInterval(() => connection.check(), Math.min(5000, connection.keepAlive / 4));
    return connection;
  } catch (error) {
    connection.close(error instanceof HushError ? error : `${error?.message ?? error}`);
    throw connection.error;
  } finally {
    clearTimeout(late);
  }
}

/** A socket over WebSocket, to "ws://host:port/path" or "wss://…". */
export function webSocketTo(url) {
  const { protocol } = new URL(url);
  need(["ws:", "wss:"].includes(protocol), "argument", `the address begins with ${protocol}//; write ws:// or wss://, or in node import hush-ldp/node`);
  return ({ onData, onClose }) => new Promise((resolve, reject) => {
    need(globalThis.WebSocket, "argument", "this runtime has no WebSocket; use an address with mqtt:// or mqtts://");
    let isOpen = false, socket, why = "no connection; check the address, and that the broker speaks MQTT over WebSocket";
    const onViolation = ({ effectiveDirective, blockedURI }) => {
      if (effectiveDirective === "connect-src" && url.startsWith(blockedURI)) {
        why = `the policy of this page (Content-Security-Policy) blocks ${url}; add the broker to its connect-src`;
      }
    };
    const forget = () => globalThis.removeEventListener?.("securitypolicyviolation", onViolation);
    const end = () => {
      forget();
      reject(new HushError("network", why));
      onClose(why);
    };
    globalThis.addEventListener?.("securitypolicyviolation", onViolation);
    try {
      socket = new WebSocket(url, ["mqtt"]);
    } catch (error) { // a page with TLS may not open ws://
      why = `no connection: ${error.message}`;
      return end();
    }
    socket.binaryType = "arraybuffer";
    socket.onopen = () => {
      isOpen = true;
      forget();
      why = "the connection was lost";
      resolve({ send: (bytes) => socket.readyState === 1 && socket.send(bytes), close: () => socket.close() });
    };
    socket.onmessage = ({ data }) => (typeof data === "string" ? onClose("the broker sent text") : onData(new Uint8Array(data)));
    // A socket that the policy blocks has an error and no close, and the violation may come after it.
    socket.onclose = socket.onerror = () => (isOpen ? end() : setTimeout(end));
  });
}
