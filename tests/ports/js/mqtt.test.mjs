import assert from "node:assert/strict";
import { test } from "node:test";
import { Broker, hush, packet, published } from "./world.mjs";

const { connect } = hush;
const CONNACK = packet(0x20, [0, 0]);

/** A connection whose broker does nothing but what the test lets it send. */
async function manual(options = {}) {
  const sent = [], messages = [];
  let events, isClosed = false;
  const open = async (given) => {
    events = given;
    return { send: (bytes) => sent.push(hush.hex(bytes)), close: () => (isClosed = true) };
  };
  const connecting = connect(open, { onMessage: (topic, payload) => messages.push([topic, hush.hex(payload)]), ...options });
  await new Promise((resolve) => setTimeout(resolve));
  return { connecting, sent, messages, receive: (bytes) => events.onData(bytes), lose: () => events.onClose("it was cut"), isClosed: () => isClosed };
}

async function connected() {
  const world = await manual();
  world.receive(CONNACK);
  return { ...world, connection: await world.connecting };
}

test("the first packet is a clean CONNECT of MQTT 3.1.1, with the login", async () => {
  const { connecting, sent, receive } = await manual({ name: "d1", username: "u", password: "pä", keepAlive: 60 });
  const bytes = hush.unhex(sent[0]), body = new TextDecoder().decode(bytes.slice(2));
  assert.equal(hush.hex(bytes.slice(2, 12)), "00044d51545404c2003c");
  assert.match(body, /d1-[0-9a-f]{12}\0\x01u\0\x03pä$/u);
  receive(CONNACK);
  (await connecting).close();
});

test("two connections have different client ids", async () => {
  const ids = await Promise.all([manual(), manual()]);
  assert.notEqual(ids[0].sent[0], ids[1].sent[0]);
  for (const { receive, connecting } of ids) { receive(CONNACK); (await connecting).close(); }
});

for (const code of [1, 2, 3, 4, 5, 6, 200]) test(`a CONNACK with code ${code} is a refusal`, async () => {
  const { connecting, receive, isClosed } = await manual();
  receive(packet(0x20, [0, code]));
  await assert.rejects(connecting, { status: "network", message: /the broker refuses/ });
  assert.ok(isClosed());
});

test("a message that comes in single bytes is one message, and is acknowledged", async () => {
  const { connection, sent, messages, receive } = await connected();
  const long = published("a/b", new Uint8Array(300).fill(1), { id: 513 });
  for (const byte of long) receive(Uint8Array.of(byte));
  assert.deepEqual(messages, [["a/b", "01".repeat(300)]]);
  assert.equal(sent.at(-1), "40020201");
  connection.close();
});

test("several packets in one piece are all read", async () => {
  const { connection, messages, receive } = await connected();
  const one = published("a", [1], { first: 0x30 }), two = published("b", [2], { first: 0x31 });
  receive(Uint8Array.of(...one, ...two, 0xd0));
  receive(Uint8Array.of(0));
  assert.deepEqual(messages, [["a", "01"], ["b", "02"]]);
  connection.close();
});

const HOSTILE = {
  "a second CONNACK": [0x20, 2, 0, 0],
  "a session that is present": null,
  "a length of five bytes": [0x30, 0xff, 0xff, 0xff, 0xff, 0x01],
  "a packet of 256 MB": [0x30, 0xff, 0xff, 0xff, 0x7f],
  "a topic longer than its packet": [0x30, 4, 0, 9, 97, 97],
  "a topic that is not UTF-8": [0x30, 4, 0, 2, 0xc3, 0x28],
  "an empty topic": [0x30, 2, 0, 0],
  "a wildcard in a topic": [0x30, 4, 0, 2, 97, 0x23],
  "a NUL in a topic": [0x30, 4, 0, 2, 97, 0],
  "quality 2": [0x34, 6, 0, 2, 97, 98, 0, 1],
  "quality 3": [0x36, 6, 0, 2, 97, 98, 0, 1],
  "packet id 0": [0x32, 6, 0, 2, 97, 98, 0, 0],
  "a PUBLISH that ends in its packet id": [0x32, 5, 0, 2, 97, 98, 0],
  "an empty PUBLISH": [0x30, 0],
  "a PUBACK of one byte": [0x40, 1, 0],
  "a PUBACK of three bytes": [0x40, 3, 0, 1, 0],
  "flags in a PUBACK": [0x42, 2, 0, 1],
  "a SUBACK without a code": [0x90, 2, 0, 1],
  "a PINGRESP with a body": [0xd0, 1, 0],
  "a CONNECT": [0x10, 0],
  "a SUBSCRIBE": [0x82, 0],
  "type 0": [0x00, 0],
  "type 15": [0xf0, 0],
};
for (const [name, bytes] of Object.entries(HOSTILE)) test(`${name} ends the connection, and nothing else`, async () => {
  if (bytes === null) {
    const { connecting, receive } = await manual();
    receive(packet(0x20, [1, 0]));
    return assert.rejects(connecting, { status: "network" });
  }
  const { connection, messages, receive, isClosed } = await connected();
  const waiting = connection.publish("t", Uint8Array.of(1));
  receive(Uint8Array.from(bytes));
  await assert.rejects(waiting, { status: "network" });
  assert.equal((await connection.closed).status, "network");
  assert.ok(isClosed());
  receive(published("late", [1]));
  assert.deepEqual(messages, []);
});

test("random bytes never do more than end the connection", async () => {
  for (let i = 0; i < 800; i++) {
    const { connection, receive } = await connected();
    const bytes = hush.systemRandom(1 + (i % 40));
    if (i % 3 === 0) bytes[0] = 0x30 | (bytes[0] & 15);
    receive(bytes);
    connection.close();
    assert.equal((await connection.closed).status, "network");
  }
});

test("a publication resolves with its own acknowledgement", async () => {
  const { connection, sent, receive } = await connected();
  const done = [];
  const first = connection.publish("t", Uint8Array.of(1)).then(() => done.push(1)), second = connection.publish("t", Uint8Array.of(2)).then(() => done.push(2));
  assert.deepEqual(sent.slice(-2), ["320600017400010" + "1", "3206000174000202"]);
  receive(packet(0x40, [0, 9]));
  receive(packet(0x40, [0, 2]));
  await second;
  receive(packet(0x90, [0, 1, 1])); // the acknowledgement of a subscription is not that of a publication
  receive(packet(0x40, [0, 1]));
  await first;
  assert.deepEqual(done, [2, 1]);
  connection.close();
});

test("a subscription that is forbidden rejects, and the connection goes on", async () => {
  const { connection, sent, receive } = await connected();
  const asked = connection.subscribe("hush/v1/tasks/a");
  assert.equal(sent.at(-1), `8214000100${"0f"}${Buffer.from("hush/v1/tasks/a").toString("hex")}01`);
  receive(packet(0x90, [0, 1, 0x80]));
  await assert.rejects(asked, { status: "forbidden" });
  const again = connection.subscribe("b");
  receive(packet(0x90, [0, 2, 1]));
  await again;
  connection.close();
});

test("what waits is rejected when the connection is lost, and later calls too", async () => {
  const { connection, lose } = await connected();
  const asked = [connection.publish("t", Uint8Array.of(1)), connection.subscribe("t")];
  lose();
  for (const one of asked) await assert.rejects(one, { status: "network", message: /it was cut/ });
  await assert.rejects(connection.publish("t", Uint8Array.of(1)), { status: "network" });
});

test("a broker that cannot be reached is a HushError", async () => {
  const broker = new Broker();
  broker.isUp = false;
  await assert.rejects(connect(broker.socketTo(), { onMessage() {} }), { status: "network" });
  await assert.rejects(connect(hush.socketTo("mqtt://127.0.0.1:1"), { onMessage() {} }), { status: "network" });
  assert.throws(() => hush.socketTo("http://127.0.0.1"), { status: "argument" });
});

test("a silent connection is kept alive, and one that does not answer is ended", async (context) => {
  context.mock.timers.enable({ apis: ["setInterval", "Date"], now: 0 });
  const { connection, sent, receive } = await connected();
  context.mock.timers.tick(45000);
  assert.equal(sent.at(-1), "c000");
  receive(packet(0xd0));
  context.mock.timers.tick(20000);
  assert.equal(sent.filter((it) => it === "c000").length, 1, "one that was answered is not asked at once again");
  context.mock.timers.tick(100000);
  assert.match((await connection.closed).message, /does not answer/);
});

test("a publication that is not acknowledged in half a minute ends the connection", async (context) => {
  context.mock.timers.enable({ apis: ["setInterval", "Date"], now: 0 });
  const { connection } = await connected();
  const waiting = connection.publish("t", Uint8Array.of(1));
  context.mock.timers.tick(40000);
  await assert.rejects(waiting, { message: /does not acknowledge/ });
});
