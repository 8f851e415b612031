// A broker and storages for tests of the JavaScript package, in one process.
const SRC = new URL("../../../client/ports/js/src/", import.meta.url);
export const hush = await import(new URL("node.js", SRC));
export const { State } = await import(new URL("state.js", SRC));

export const HEIGHTS = { domain: { kind: "number", lower: 120.0, outside: "clamp", unit: "cm", upper: 220.0 }, epsilon: "1", id: "heights",
  mechanism: "laplace", purpose: "Sizing", rounds: 1, title: "Heights" };
export const DAILY = { domain: { kind: "bit" }, epsilon: "3", id: "daily", mechanism: "randomized_response", opens: "2026-01-01T00:00:00Z",
  purpose: "Days", round_every: "1d", rounds: 3 };
export const OPENS = Date.parse(DAILY.opens), DAY = 86400000;
export const payloadOf = (task) => new TextEncoder().encode(JSON.stringify(task).replace(/"(lower|upper)":(\d+)([,}])/g, '"$1":$2.0$3'));

/** A storage in memory. `fail` makes the next writes fail; every write is noted. */
export function memory(records = new Map()) {
  const storage = {
    records, writes: [], fail: null, isClosed: false,
    async update(step) {
      const changes = [...step(new Map(records))];
      if (changes.length && storage.fail) throw new hush.HushError("storage", storage.fail);
      for (const [name, bytes] of changes) {
        if (bytes) records.set(name, bytes);
        else records.delete(name);
        storage.writes.push(name);
      }
    },
    async close() { storage.isClosed = true; },
  };
  return storage;
}

const words = (bytes, at) => (bytes[at] << 8) | bytes[at + 1];
const decode = (bytes) => new TextDecoder().decode(bytes);
export function packet(first, ...parts) {
  const body = parts.flatMap((part) => [...part]), size = body.length;
  const length = size < 128 ? [size] : size < 16384 ? [(size & 127) | 128, size >> 7] : [(size & 127) | 128, ((size >> 7) & 127) | 128, size >> 14];
  return Uint8Array.of(first, ...length, ...body);
}
const text = (value) => { const bytes = new TextEncoder().encode(value); return [bytes.length >> 8, bytes.length & 255, ...bytes]; };
export const published = (topic, payload, { id = 7, first = 0x32 } = {}) => packet(first, text(topic), first & 6 ? [id >> 8, id & 255] : [], payload);

/**
 * A broker that speaks MQTT 3.1.1 in memory. `answer(packet, reply)` may take a packet over, by returning true.
 * `received` has the reports, each as [topic, frame in hex].
 */
export class Broker {
  retained = new Map();
  received = [];
  connects = [];
  links = new Set();
  subscriptions = [];
  isUp = true;
  answer = () => false;

  /** What a device takes for `socketTo`. */
  socketTo = () => ({ onData, onClose }) => {
    if (!this.isUp) return Promise.reject(new hush.HushError("network", "no connection"));
    const link = { bytes: [], reply: (bytes) => queueMicrotask(() => this.links.has(link) && onData(bytes)),
      lose: () => { this.links.delete(link); onClose("the connection was lost"); } };
    this.links.add(link);
    const send = (bytes) => {
      link.bytes.push(...bytes);
      for (let found; (found = take(link.bytes)); ) queueMicrotask(() => this.links.has(link) && this.handle(found, link));
    };
    return Promise.resolve({ send, close: () => this.links.delete(link) });
  };

  handle(found, link) {
    if (this.answer(found, link)) return;
    const { type, body } = found;
    if (type === 1) {
      this.connects.push(body);
      link.reply(packet(0x20, [0, 0]));
    } else if (type === 8) {
      const topic = decode(body.slice(4, 4 + words(body, 2)));
      this.subscriptions.push(topic);
      link.reply(packet(0x90, body.slice(0, 2), [1]));
      for (const [name, payload] of this.retained) if (name === topic || (topic.endsWith("+") && name.startsWith(topic.slice(0, -1)))) link.reply(published(name, payload));
    } else if (type === 3) {
      const end = 2 + words(body, 0);
      this.received.push([decode(body.slice(2, end)), hush.hex(body.slice(end + 2))]);
      link.reply(packet(0x40, body.slice(end, end + 2)));
    } else if (type === 12) link.reply(packet(0xd0));
  }

  publish(topic, payload) {
    this.retained.set(topic, payload);
    for (const link of this.links) link.reply(published(topic, payload));
  }
  task(task) {
    this.publish(`hush/v1/tasks/${task.id}`, payloadOf(task));
  }
  lose() {
    for (const link of [...this.links]) link.lose();
  }
  /** Frames by task, in the order in which they came. */
  frames() {
    return this.received.map(([, frame]) => frame);
  }
}

function take(bytes) {
  let size = 0, at = 1;
  for (let shift = 0; ; shift += 7, at++) {
    if (at >= bytes.length) return null;
    size += (bytes[at] & 127) << shift;
    if (bytes[at] < 128) break;
  }
  if (bytes.length < at + 1 + size) return null;
  const all = bytes.splice(0, at + 1 + size);
  return { type: all[0] >> 4, flags: all[0] & 15, body: Uint8Array.from(all.slice(at + 1)) };
}

/** Waits; the end is for a test that fails: a machine with other work takes long. */
export const until = async (condition, ms = 60000) => {
  for (const end = Date.now() + ms; !condition(); await new Promise((resolve) => setTimeout(resolve, 5))) {
    if (Date.now() > end) throw new Error(`it did not happen: ${condition}`);
  }
};

/** A device at a broker; the clock is `at.now`, in milliseconds. */
export async function deviceAt(broker, { storage = memory(), at = { now: OPENS }, ...options } = {}) {
  const device = new hush.Device({ url: "ws://broker", device: "d1", storage, socketTo: broker.socketTo, spread: 0, clock: () => at.now, ...options });
  return device.open();
}
