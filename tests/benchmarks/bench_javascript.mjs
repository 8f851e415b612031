// The JavaScript device with many tasks: node tests/benchmarks/bench_javascript.mjs [tasks ...].
//
// A device answers so many tasks, each in its own loop (`answerEachRound`, as hush-device does), until the broker has
// acknowledged all of them. Then a device with the same state starts again, and answers one more. Milliseconds of
// processor time. Storage and broker are in this process, so that files, a network and other programs change nothing:
// what grows with the number of tasks is the device's. The storage copies each record, as IndexedDB does.
import { Device } from "../../client/ports/js/src/node.js";

const utf8 = new TextEncoder();

/** A broker with retained tasks: it acknowledges everything, and sends each task to a subscriber once. */
function brokerWith(tasks) {
  const packet = (first, ...body) => {
    const size = body.length, length = [];
    for (let left = size; ; left >>= 7) {
      length.push(left > 127 ? (left & 127) | 128 : left);
      if (left < 128) break;
    }
    return Uint8Array.from([first, ...length, ...body]);
  };
  const broker = { acknowledged: 0, onAcknowledge: () => {} };
  broker.socketTo = () => async ({ onData }) => {
    const reply = (...parts) => setImmediate(() => parts.forEach(onData));
    const retained = (topic) => [...tasks].filter(([id]) => topic.endsWith("+") || topic.endsWith(`/${id}`)).map(([id, payload]) => {
      const name = utf8.encode(`hush/v1/tasks/${id}`);
      return packet(0x31, name.length >> 8, name.length & 255, ...name, ...payload);
    });
    const send = (bytes) => {
      const at = 1 + bytes.slice(1).findIndex((byte) => byte < 128) + 1, [high, low] = bytes.slice(at);
      if (bytes[0] >> 4 === 1) reply(packet(0x20, 0, 0));
      else if (bytes[0] >> 4 === 8) {
        const topic = new TextDecoder().decode(bytes.slice(at + 4, -1));
        reply(packet(0x90, high, low, 1), ...(topic.startsWith("hush/v1/tasks/") ? retained(topic) : []));
      } else if (bytes[0] >> 4 === 3) {
        const name = (high << 8) | low, [a, b] = bytes.slice(at + 2 + name);
        broker.acknowledged++;
        reply(packet(0x40, a, b));
        broker.onAcknowledge();
      }
    };
    return { send, close: () => {} };
  };
  return broker;
}

/** A storage in memory, which gives and takes copies. */
function memoryStorage(records = new Map()) {
  let last = Promise.resolve();
  const update = async (step) => {
    const copies = new Map([...records].map(([name, bytes]) => [name, bytes.slice()]));
    for (const [name, bytes] of step(copies)) {
      if (bytes) records.set(name, bytes.slice());
      else records.delete(name);
    }
  };
  return { records, update: (step) => (last = last.then(() => update(step))), async close() {} };
}

const taskOf = (id) => utf8.encode(JSON.stringify({ domain: { kind: "bit" }, epsilon: "1", id, mechanism: "randomized_response", purpose: id, rounds: 1 }));
const used = (since) => {
  const { user, system } = process.cpuUsage(since);
  return (user + system) / 1000;
};
const deviceOf = (broker, storage) => new Device({ url: "mqtt://localhost", device: "d1", socketTo: broker.socketTo, storage, spread: 0 }).open();

/** Answer all tasks; the processor time until the broker has acknowledged them. */
async function answerAll(tasks, storage) {
  const broker = brokerWith(tasks), began = process.cpuUsage();
  const device = await deviceOf(broker, storage);
  const done = new Promise((resolve) => { broker.onAcknowledge = () => broker.acknowledged === tasks.size && resolve(); });
  for (const id of tasks.keys()) void device.answerEachRound(id, () => "yes", { sourceTimeout: 0 });
  await done;
  await device.flush();
  const spent = used(began);
  await device.close();
  return spent;
}

/** With the state of all tasks, answer one more. */
async function answerOneMore(storage) {
  const broker = brokerWith(new Map([["one-more", taskOf("one-more")]])), began = process.cpuUsage();
  const device = await deviceOf(broker, storage), receipt = await device.answer("one-more", "yes");
  const spent = used(began);
  if (receipt.status !== "sent") throw new Error(receipt.status);
  await device.close();
  return spent;
}

const counts = process.argv.slice(2).map(Number);
console.log(" tasks        ms  ms a task  one more, ms");
for (const count of [20, ...(counts.length ? counts : [50, 100, 200, 400, 800])]) { // the first one compiles, and is not printed
  const tasks = new Map(Array.from({ length: count }, (_, i) => [`task-${i}`, taskOf(`task-${i}`)])), storage = memoryStorage();
  const spent = await answerAll(tasks, storage), more = await answerOneMore(storage);
  const row = [`${count}`.padStart(6), spent.toFixed(0).padStart(9), (spent / count).toFixed(1).padStart(10), more.toFixed(0).padStart(13)];
  if (count !== 20) console.log(row.join(" "));
}
