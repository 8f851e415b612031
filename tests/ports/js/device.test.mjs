import assert from "node:assert/strict";
import { test } from "node:test";
import { Broker, DAILY, DAY, HEIGHTS, OPENS, State, deviceAt, hush, memory, payloadOf, published, until } from "./world.mjs";

const recall = (task, id, over = 1) => new TextEncoder().encode(JSON.stringify({ v: 1, task: task.id, digest: hush.hex(hush.sha256(payloadOf(task))), id: id.repeat(16), over }));
const stateOf = (storage) => new State(storage.records);

function brokerWith(...tasks) {
  const broker = new Broker();
  for (const task of tasks) broker.task(task);
  return broker;
}

test("an answer is charged, stored and sent, and described", async () => {
  const broker = brokerWith(HEIGHTS), storage = memory(), device = await deviceAt(broker, { storage });
  const receipt = await device.answer("heights", 172);
  assert.equal(receipt.status, "sent");
  assert.equal(receipt.epsilon, "1");
  assert.equal(receipt.spent, "1");
  assert.equal(receipt.value, "used");
  assert.equal(JSON.stringify(receipt).includes('"value"'), false, "what became of the value is not shown");
  assert.equal(broker.received[0][0], "hush/v1/reports/heights/d1");
  assert.equal(broker.frames()[0].slice(48, 80), receipt.report);
  const number = 120 + (100 * receipt.body[0]) / 2 ** 20;
  assert.equal(receipt.text, `${Number(number.toPrecision(6))} cm`);
  await device.close();
});

test("the record with charge and frame is stored before the first byte of the report leaves", async () => {
  const broker = brokerWith(HEIGHTS), storage = memory(), device = await deviceAt(broker, { storage });
  let stored = null;
  broker.answer = ({ type }) => {
    if (type === 3) stored ??= stateOf(storage).tasks.get("heights");
    return false;
  };
  await device.answer("heights", 172);
  assert.equal(stored.spent, "1/1");
  assert.equal(stored.entries[0].frame, broker.frames()[0]);
  await device.close();
});

test("a round is answered once, whatever is tried", async () => {
  const broker = brokerWith(HEIGHTS), storage = memory(), device = await deviceAt(broker, { storage });
  const [first, ...others] = await Promise.all([172, 150, null].map((value) => device.answer("heights", value)));
  const again = await device.answer("heights", 180);
  await device.close();
  const restarted = await deviceAt(broker, { storage });
  const later = await restarted.answer("heights", 190);
  assert.equal(first.status, "sent");
  for (const one of [...others, again, later]) {
    assert.equal(one.status, "answered");
    assert.equal(one.report, first.report);
    assert.deepEqual(one.body, first.body);
  }
  assert.equal(new Set(broker.frames()).size, 1);
  await restarted.close();
});

test("two devices on one storage, like two tabs, answer a round once", async () => {
  const broker = brokerWith(HEIGHTS), storage = memory();
  const devices = await Promise.all([deviceAt(broker, { storage }), deviceAt(broker, { storage })]);
  const receipts = await Promise.all(devices.map((device) => device.answer("heights", 172)));
  assert.deepEqual(receipts.map((it) => it.status).sort(), ["answered", "sent"]);
  assert.equal(receipts[0].report, receipts[1].report);
  assert.equal(new Set(broker.frames()).size, 1);
  for (const device of devices) await device.close();
});

test("each round of a task costs its share, and is answered once", async () => {
  const broker = brokerWith(DAILY), storage = memory(), at = { now: OPENS }, device = await deviceAt(broker, { storage, at });
  const receipts = [];
  for (at.now of [OPENS, OPENS + DAY - 1, OPENS + DAY, OPENS + 2 * DAY, OPENS + 90 * DAY]) receipts.push(await device.answer("daily", true));
  assert.deepEqual(receipts.map((it) => [it.status, it.round, it.spent]),
    [["sent", 0, "1"], ["answered", 0, "1"], ["sent", 1, "2"], ["sent", 2, "3"], ["answered", 2, "3"]]);
  assert.deepEqual((await device.ledger()).tasks[0].rounds, 3);
  assert.deepEqual(stateOf(storage).tasks.get("daily").answered, [[0, 2]]);
  await device.close();
});

test("an earlier round is answered too, after the clock was set back", async () => {
  const broker = brokerWith(DAILY), at = { now: OPENS + 2 * DAY }, device = await deviceAt(broker, { at });
  assert.equal((await device.answer("daily", true)).round, 2);
  at.now = OPENS;
  assert.deepEqual([(await device.answer("daily", true)).status, (await device.answer("daily", true)).status], ["sent", "answered"]);
  await device.close();
});

const REFUSALS = {
  epsilon: [{ ...HEIGHTS, epsilon: "5" }, {}],
  spent: [HEIGHTS, { lifetime: "0.999999" }],
  not_open: [{ ...HEIGHTS, opens: "2026-02-01T00:00:00Z" }, {}],
  closed: [{ ...HEIGHTS, closes: "2025-02-01T00:00:00Z" }, {}],
  sticky: [{ ...DAILY, epsilon: "2", repeat: "sticky" }, {}],
};
for (const [reason, [task, options]] of Object.entries(REFUSALS)) test(`a refusal "${reason}" comes before any value, and nothing is drawn or stored`, async () => {
  const broker = brokerWith(task), storage = memory();
  const device = await deviceAt(broker, { storage, random: () => assert.fail("it drew"), ...options });
  for (const receipt of [await device.admit(task.id), await device.answer(task.id, null)]) {
    assert.deepEqual([receipt.status, receipt.reason, receipt.report], ["refused", reason, null]);
    assert.ok(receipt.message.length > 20);
  }
  assert.deepEqual([...storage.records.keys()], []);
  assert.deepEqual(broker.received, []);
  await device.close();
});

test("budgets are of a purpose, and of all purposes", async () => {
  const other = { ...HEIGHTS, id: "weights" }, third = { ...HEIGHTS, id: "third", purpose: "Other" };
  const broker = brokerWith(HEIGHTS, other, third), device = await deviceAt(broker, { lifetime: "1.5", total: "1.5" });
  assert.equal((await device.answer("heights", 172)).status, "sent");
  assert.equal((await device.answer("weights", 172)).reason, "spent");
  assert.equal((await device.answer("third", 172)).reason, "spent");
  await device.close();
});

test("the largest offer that the limits allow is taken", async () => {
  const task = { ...HEIGHTS, id: "offers", epsilon: "4", offers: ["0.5", "1", "4"] };
  const broker = brokerWith(task), device = await deviceAt(broker, { lifetime: "2" });
  const receipt = await device.answer("offers", 172);
  assert.deepEqual([receipt.epsilon, receipt.body[0]], ["1", 1]);
  await device.close();
});

test("a task that changed under its id is refused, as soon as the first one was admitted", async () => {
  const broker = brokerWith(HEIGHTS), device = await deviceAt(broker);
  assert.equal((await device.admit("heights")).status, "open");
  broker.task({ ...HEIGHTS, epsilon: "0.5" });
  await until(() => device.tasks[0]?.epsilon === "0.5");
  assert.equal((await device.answer("heights", 172)).reason, "changed");
  broker.task(HEIGHTS);
  await until(() => device.tasks[0]?.epsilon === "1");
  assert.equal((await device.answer("heights", 172)).status, "sent");
  await assert.rejects(device.forget("heights"), { status: "answered" });
  await device.close();
});

test("a task that was admitted and not answered can be forgotten", async () => {
  const broker = brokerWith(HEIGHTS), storage = memory(), device = await deviceAt(broker, { storage });
  await device.admit("heights");
  await device.forget("heights");
  assert.deepEqual([...storage.records.keys()], []);
  await device.close();
});

test("a task under another id, and one that cannot be read, are errors of the task", async () => {
  const broker = new Broker();
  broker.publish("hush/v1/tasks/weights", payloadOf(HEIGHTS));
  broker.publish("hush/v1/tasks/odd", new TextEncoder().encode("{"));
  const device = await deviceAt(broker);
  await assert.rejects(device.answer("weights", 172), { status: "task" });
  await assert.rejects(device.answer("odd", 172), { status: "malformed" });
  await assert.rejects(device.answer("none", 172, { timeout: 0.05 }), { status: "no_task" });
  await device.close();
});

test("a withdrawn task is not answered", async () => {
  const broker = brokerWith(HEIGHTS), device = await deviceAt(broker);
  await device.task("heights");
  broker.publish("hush/v1/tasks/heights", new Uint8Array(0));
  await until(() => device.tasks.length === 0);
  await assert.rejects(device.answer("heights", 172, { timeout: 0.05 }), { status: "no_task" });
  await device.close();
});

test("a value of a wrong type is a TypeError before anything is drawn or stored", async () => {
  const broker = brokerWith(HEIGHTS, DAILY), storage = memory(), device = await deviceAt(broker, { storage });
  for (const [id, value] of [["heights", true], ["heights", {}], ["daily", 1], ["heights", 5n]]) await assert.rejects(device.answer(id, value), TypeError);
  assert.equal(storage.records.size, 0);
  await device.close();
});

test("no value, and any other one, decides nothing but the body", async () => {
  const seen = [];
  for (const value of [172, null, NaN, "x", Infinity, -5]) {
    const broker = brokerWith(HEIGHTS), storage = memory(), device = await deviceAt(broker, { storage });
    const { status, epsilon, spent, round } = await device.answer("heights", value);
    await device.close();
    const record = stateOf(storage).tasks.get("heights"), [entry] = record.entries;
    seen.push(JSON.stringify([status, epsilon, spent, round, storage.writes, broker.received.length, record.spent, entry.frame.length, entry.topic]));
  }
  assert.equal(new Set(seen).size, 1);
});

test("a storage that fails stops the answer, and nothing is sent", async () => {
  const broker = brokerWith(HEIGHTS), storage = memory(), device = await deviceAt(broker, { storage });
  await device.task("heights");
  storage.fail = "the disk is full";
  await assert.rejects(device.answer("heights", 172), { status: "storage" });
  storage.fail = null;
  assert.deepEqual(broker.received, []);
  assert.equal(storage.records.size, 0);
  assert.equal((await device.answer("heights", 172)).status, "sent", "nothing was spent");
  await device.close();
});

for (const [name, spoil] of Object.entries({
  "a bit of it is changed": (bytes) => { bytes[100] ^= 1; },
  "it is cut": (bytes) => bytes.slice(0, 90),
  "it is empty": () => new Uint8Array(0),
  "its digest is that of other text": (bytes) => { bytes[5] ^= 1; },
})) test(`a record is damaged if ${name}: then the device refuses to start`, async () => {
  const broker = brokerWith(HEIGHTS), storage = memory(), device = await deviceAt(broker, { storage });
  await device.answer("heights", 172);
  await device.close();
  const bytes = storage.records.get("task.heights").slice();
  storage.records.set("task.heights", spoil(bytes) ?? bytes);
  await assert.rejects(deviceAt(broker, { storage }), { status: "storage", message: /damaged/ });
});

test("without a connection a task that was admitted is answered, and the report is sent later", async () => {
  const broker = brokerWith(DAILY), storage = memory(), at = { now: OPENS }, device = await deviceAt(broker, { storage, at });
  await device.answer("daily", true);
  await device.close();
  broker.isUp = false;
  at.now = OPENS + DAY;
  const offline = await deviceAt(broker, { storage, at });
  const receipt = await offline.answer("daily", true, { timeout: 0.2 });
  assert.equal(receipt.status, "queued");
  assert.equal(offline.waiting, 1);
  assert.equal((await offline.answer("daily", false, { timeout: 0.05 })).waiting, true);
  await offline.close();
  broker.isUp = true;
  const online = await deviceAt(broker, { storage, at });
  assert.equal(await online.flush(), true);
  assert.equal(broker.frames()[1].slice(48, 80), receipt.report);
  await online.close();
});

test("a task in the cache that does not have the pinned digest is not used", async () => {
  const broker = brokerWith(DAILY), storage = memory(), device = await deviceAt(broker, { storage });
  await device.answer("daily", true);
  await device.close();
  storage.records.set("cache.daily", payloadOf({ ...DAILY, title: "Another" }));
  broker.isUp = false;
  const offline = await deviceAt(broker, { storage, at: { now: OPENS + DAY } });
  await assert.rejects(offline.answer("daily", true, { timeout: 0.2 }), { status: "network", message: /no connection/ });
  await offline.close();
});

test("the same bytes are sent until they are acknowledged, over lost connections and restarts", async () => {
  const broker = brokerWith(HEIGHTS), storage = memory();
  let drops = 3;
  broker.answer = ({ type, body }, link) => {
    if (type !== 3 || !drops) return false;
    drops--;
    broker.received.push(["dropped", hush.hex(body.slice(4 + "hush/v1/reports/heights/d1".length))]);
    link.lose();
    return true;
  };
  const device = await deviceAt(broker, { storage });
  const receipt = await device.answer("heights", 172, { timeout: 0.01 });
  assert.equal(receipt.status, "queued");
  await until(() => broker.received.length === 2);
  await device.close();
  const restarted = await deviceAt(broker, { storage });
  assert.equal(await restarted.flush(), true);
  assert.equal(broker.received.length, 4);
  assert.equal(new Set(broker.frames()).size, 1);
  await restarted.close();
});

test("a report is held back for its random delay, also over a restart", async () => {
  const broker = brokerWith(HEIGHTS), storage = memory(), at = { now: OPENS };
  const device = await deviceAt(broker, { storage, at, spread: 100000 });
  assert.equal((await device.answer("heights", 172, { timeout: 0.1 })).status, "queued");
  const { due, delay } = stateOf(storage).tasks.get("heights").entries[0];
  assert.ok(delay > 0 && delay <= 100000000 && due === OPENS + delay, "0 with a probability of 1e-8");
  assert.deepEqual(broker.received, []);
  await device.close();
  at.now = due;
  const later = await deviceAt(broker, { storage, at });
  assert.equal(await later.flush(), true);
  await later.close();
});

test("a clock that is set back delays nothing for longer than the delay", async () => {
  const broker = brokerWith(HEIGHTS), storage = memory(), at = { now: OPENS + 3650 * DAY };
  broker.answer = ({ type }) => type === 3;
  const device = await deviceAt(broker, { storage, at });
  await device.answer("heights", 172, { timeout: 0.01 });
  await device.close();
  broker.answer = () => false;
  at.now = OPENS;
  const later = await deviceAt(broker, { storage, at });
  assert.equal(await later.flush({ timeout: 60 }), true);
  await later.close();
});

test("too many reports that wait are a refusal", async () => {
  const task = { ...DAILY, id: "many", epsilon: "2", rounds: 2000, round_every: "1s" };
  const broker = brokerWith(task), storage = memory(), at = { now: OPENS };
  broker.answer = ({ type }) => type === 3;
  const first = await deviceAt(broker, { storage, at });
  await first.admit("many");
  const state = stateOf(storage), record = state.tasks.get("many"), frame = "02000008" + "00".repeat(44);
  state.put({ ...record, entries: Array.from({ length: 1000 }, (_, round) => ({ round: round + 500, topic: "t", frame, due: OPENS + DAY, delay: DAY, acked: 0, place: "" })) });
  for (const [name, bytes] of state.changes()) storage.records.set(name, bytes);
  const receipt = await first.answer("many", true, { timeout: 0 });
  assert.deepEqual([receipt.status, receipt.reason], ["refused", "full"]);
  await first.close();
});

test("a sticky task is charged once, and all its rounds have one memory", async () => {
  const task = { ...DAILY, id: "kept", epsilon: "2", repeat: "sticky", rounds: 50 };
  const broker = brokerWith(task), storage = memory(), at = { now: OPENS }, options = { storage, at, sticky: true };
  const bodies = { true: new Set(), false: new Set() };
  for (let round = 0; round < 12; round++) {
    at.now = OPENS + round * DAY;
    const device = await deviceAt(broker, options), receipt = await device.answer("kept", round % 2 === 0);
    assert.deepEqual([receipt.status, receipt.spent, receipt.epsilon], ["sent", "2", round ? "0" : "2"]);
    bodies[round % 2 === 0].add(receipt.body[0]);
    await device.close();
  }
  assert.deepEqual([bodies.true.size, bodies.false.size], [1, 1]);
});

// ---- recalls

test("a recalled report is sent once more, the same bytes, and not again after a restart", async () => {
  const broker = brokerWith(HEIGHTS), storage = memory(), at = { now: OPENS }, device = await deviceAt(broker, { storage, at });
  await device.answer("heights", 172);
  await until(() => broker.subscriptions.includes("hush/v1/recalls/heights"));
  broker.publish("hush/v1/recalls/heights", recall(HEIGHTS, "ab"));
  at.now += 1000;
  await until(() => stateOf(storage).tasks.get("heights").recall.id !== null);
  at.now += 1000;
  await until(() => stateOf(storage).tasks.get("heights").recall.served.length === 1);
  assert.equal(broker.received.length, 2);
  assert.equal(new Set(broker.frames()).size, 1);
  await device.close();
  const restarted = await deviceAt(broker, { storage, at });
  await until(() => restarted.connected);
  await new Promise((resolve) => setTimeout(resolve, 100));
  assert.equal(broker.received.length, 2, "this recall was served");
  assert.equal((await restarted.ledger()).total, "1", "a recall costs nothing");
  await restarted.close();
});

test("one recall of a task in an hour is served; the newest waits; an empty message cancels it", async () => {
  const broker = brokerWith(HEIGHTS), storage = memory(), at = { now: OPENS }, device = await deviceAt(broker, { storage, at });
  await device.answer("heights", 172);
  const served = () => stateOf(storage).tasks.get("heights").recall.served.length;
  await until(() => broker.subscriptions.includes("hush/v1/recalls/heights"));
  broker.publish("hush/v1/recalls/heights", recall(HEIGHTS, "ab", 0));
  await until(() => stateOf(storage).tasks.get("heights").recall.id !== null);
  at.now += 2000;
  await until(served);
  broker.publish("hush/v1/recalls/heights", recall(HEIGHTS, "cd", 0));
  broker.publish("hush/v1/recalls/heights", recall(HEIGHTS, "ef", 0));
  await new Promise((resolve) => setTimeout(resolve, 100));
  assert.equal(served(), 1);
  await device.close();
  broker.publish("hush/v1/recalls/heights", new Uint8Array(0));
  at.now += 3600000;
  const later = await deviceAt(broker, { storage, at });
  await until(() => later.connected);
  await new Promise((resolve) => setTimeout(resolve, 100));
  assert.equal(served(), 1, "it was cancelled");
  broker.publish("hush/v1/recalls/heights", recall(HEIGHTS, "ef", 0));
  await until(() => stateOf(storage).tasks.get("heights").recall.id !== null);
  at.now += 2000;
  await until(() => served() === 2);
  assert.equal(broker.received.length, 3);
  await later.close();
});

for (const [name, make] of Object.entries({
  "another digest": () => recall({ ...HEIGHTS, title: "Other" }, "ab"),
  "another task": () => recall(DAILY, "ab"),
  "no JSON": () => Uint8Array.of(1, 2, 3),
})) test(`a recall with ${name} is ignored`, async () => {
  const broker = brokerWith(HEIGHTS), storage = memory(), device = await deviceAt(broker, { storage });
  await device.answer("heights", 172);
  await until(() => broker.subscriptions.includes("hush/v1/recalls/heights"));
  broker.publish("hush/v1/recalls/heights", make());
  await new Promise((resolve) => setTimeout(resolve, 100));
  const { began, id } = stateOf(storage).tasks.get("heights").recall;
  assert.deepEqual([began, id, broker.received.length], [0, null, 1]);
  await device.close();
});

test("a report is recalled by the broker that took it, and by no other", async () => {
  const broker = brokerWith(HEIGHTS), storage = memory(), device = await deviceAt(broker, { storage });
  await device.answer("heights", 172);
  await device.close();
  broker.publish("hush/v1/recalls/heights", recall(HEIGHTS, "ab", 0));
  const elsewhere = await deviceAt(broker, { storage, url: "ws://other" });
  await until(() => broker.subscriptions.includes("hush/v1/recalls/heights"));
  await new Promise((resolve) => setTimeout(resolve, 100));
  assert.equal(broker.received.length, 1);
  await elsewhere.close();
});

test("a kept report ends after a week, its charge never", async () => {
  const broker = brokerWith(HEIGHTS), storage = memory(), at = { now: OPENS }, device = await deviceAt(broker, { storage, at });
  await device.answer("heights", 172);
  at.now = OPENS + 7 * DAY - 1;
  assert.equal((await device.ledger()).tasks[0].kept, 1);
  at.now = OPENS + 7 * DAY + 5000;
  assert.deepEqual([(await device.ledger()).tasks[0].kept, (await device.ledger()).total], [0, "1"]);
  assert.equal((await device.answer("heights", 172)).status, "answered");
  await device.close();
});

test("with keep 0 nothing is kept", async () => {
  const broker = brokerWith(HEIGHTS), storage = memory(), device = await deviceAt(broker, { storage, keep: 0 });
  await device.answer("heights", 172);
  await device.close();
  assert.deepEqual(stateOf(storage).tasks.get("heights").entries, []);
  assert.equal(broker.subscriptions.includes("hush/v1/recalls/heights"), false);
});

// ---- a source

test("a source is asked once in each round, and what it does decides nothing", async () => {
  const sources = [() => true, () => null, () => { throw new Error("broken"); }, () => new Promise(() => {}), () => 17];
  for (const source of sources) {
    const broker = brokerWith(DAILY), at = { now: OPENS }, device = await deviceAt(broker, { at }), receipts = [];
    void device.answerEachRound("daily", source, { sourceTimeout: 0.05, onReceipt: (it) => receipts.push(it) });
    await until(() => receipts.length === 1);
    at.now += 100;
    assert.equal(await device.flush(), true);
    assert.deepEqual([receipts[0].status, receipts[0].round, broker.received.length], ["queued", 0, 1]);
    await device.close();
  }
});

/** Cut the connection; wait until the device has connected and subscribed again. */
async function reconnected(broker, hasten = () => {}) {
  const before = broker.subscriptions.length;
  broker.lose();
  await until(() => (hasten(), broker.subscriptions.length > before));
}

/** A device with a source that is asked, and that answers when it is told to. */
async function deviceAsking({ broker = brokerWith(HEIGHTS), storage = memory(), ...options } = {}) {
  const device = await deviceAt(broker, { storage }), receipts = [];
  const asked = [];
  const running = device.answerEachRound("heights", () => new Promise((resolve) => asked.push(resolve)), { sourceTimeout: 3600, onReceipt: (it) => receipts.push(it), ...options });
  return { broker, storage, device, receipts, asked, running };
}

test("a source that is pending when the device is closed costs nothing, and is asked again", async () => {
  const { broker, storage, device, receipts, asked, running } = await deviceAsking();
  await until(() => asked.length === 1);
  await device.close();
  await running;
  assert.deepEqual([receipts, stateOf(storage).spent()[0], broker.received], [[], 0n, []]);
  const again = await deviceAsking({ broker, storage });
  await until(() => again.asked.length === 1);
  again.asked[0](172);
  await until(() => again.receipts.length === 1);
  assert.deepEqual([again.receipts[0].status, again.receipts[0].value], ["queued", "used"]);
  await again.device.close();
});

test("a source that answers while the device is closed costs nothing", async () => {
  const { storage, device, receipts, asked, running } = await deviceAsking();
  await until(() => asked.length === 1);
  asked[0](172);
  await device.close();
  await running;
  assert.deepEqual([receipts, stateOf(storage).spent()[0]], [[], 0n]);
});

test("an event of the network, and a lost connection, do not end the time of a source", async (context) => {
  const listeners = [];
  globalThis.addEventListener = (name, listener) => name === "online" && listeners.push(listener);
  context.after(() => delete globalThis.addEventListener);
  const { broker, device, receipts, asked } = await deviceAsking();
  await until(() => asked.length === 1);
  for (let i = 0; i < 3; i++) await reconnected(broker, () => listeners.forEach((listener) => listener()));
  assert.deepEqual([listeners.length, asked.length, receipts], [1, 1, []]);
  asked[0](172);
  await until(() => receipts.length === 1);
  assert.deepEqual([receipts[0].status, receipts[0].value], ["queued", "used"]);
  await device.close();
});

test("a source has the whole of its time, also beyond a minute, and then a value is missing", async (context) => {
  context.mock.timers.enable({ apis: ["setTimeout"] });
  const turns = async () => { for (let i = 0; i < 200; i++) await new Promise((resolve) => setImmediate(resolve)); };
  const { device, receipts, asked } = await deviceAsking({ sourceTimeout: 90000 });
  await turns();
  assert.equal(asked.length, 1);
  for (let minute = 0; minute < 1499; minute++) context.mock.timers.tick(60000);
  await turns();
  assert.deepEqual(receipts, []);
  context.mock.timers.tick(60000);
  await turns();
  assert.deepEqual([receipts.length, receipts[0].value], [1, "replaced"]);
  const closing = device.close();
  for (let i = 0; i < 5; i++) { await turns(); context.mock.timers.tick(60000); }
  await closing;
});

for (const sourceTimeout of [-1, NaN, 7 * 86400 + 1, "x"]) test(`a sourceTimeout of ${sourceTimeout} is refused`, async () => {
  const device = await deviceAt(brokerWith(HEIGHTS));
  await assert.rejects(device.answerEachRound("heights", () => 172, { sourceTimeout }), { status: "argument", message: new RegExp(`sourceTimeout.*${sourceTimeout}`) });
  await device.close();
});

// ---- callbacks of the program, and a storage that fails

const THROWS = {
  "an exception": () => { throw new Error("element is null"); },
  "null": () => { throw null; },
  "a promise that rejects": () => Promise.reject(new Error("element is null")),
};
for (const [kind, mistake] of Object.entries(THROWS)) test(`${kind} in a callback ends neither the connection nor the answers`, async () => {
  const broker = brokerWith(DAILY), at = { now: OPENS }, receipts = [];
  const device = await deviceAt(broker, { at, onChange: mistake });
  void device.answerEachRound("daily", () => true, { sourceTimeout: 0, onReceipt: (it) => { receipts.push(it); return mistake(); } });
  await until(() => broker.received.length === 1);
  for (let i = 0; i < 3; i++) await reconnected(broker);
  at.now += DAY;
  broker.task({ ...DAILY, title: "Other" });
  await until(() => receipts.some((it) => it.reason === "changed"));
  broker.task(DAILY);
  await until(() => new Set(broker.frames()).size === 2);
  assert.deepEqual(receipts.filter((it) => it.status === "queued").map((it) => it.round), [0, 1]);
  await device.close();
});

test("a source that rejects after its time is over disturbs nothing", async () => {
  const broker = brokerWith(HEIGHTS), device = await deviceAt(broker), receipts = [];
  let fail;
  void device.answerEachRound("heights", () => new Promise((_, reject) => (fail = reject)), { sourceTimeout: 0.01, onReceipt: (it) => receipts.push(it) });
  await until(() => receipts.length === 1);
  fail(new Error("late"));
  await new Promise((resolve) => setImmediate(resolve));
  assert.equal(receipts[0].value, "replaced");
  await device.close();
});

test("while the storage fails nothing is asked, the device says why, and it goes on once the storage works", async () => {
  const broker = brokerWith(HEIGHTS), storage = memory(), device = await deviceAt(broker, { storage }), receipts = [];
  storage.fail = "the disk is full";
  let asked = 0;
  void device.answerEachRound("heights", () => (asked++, 172), { sourceTimeout: 0, onReceipt: (it) => receipts.push(it) });
  await until(() => device.trouble);
  assert.match(device.trouble, /the disk is full/);
  assert.deepEqual([asked, receipts], [0, []]);
  storage.fail = null;
  await until(() => broker.received.length === 1);
  assert.deepEqual([device.trouble, asked, receipts.length, receipts[0].value], ["", 1, 1, "used"]);
  await device.close();
});

test("a device whose storage fails at its end is closed all the same", async () => {
  const broker = brokerWith(HEIGHTS), storage = memory(), device = await deviceAt(broker, { storage });
  storage.update = () => Promise.reject(new hush.HushError("storage", "the disk is full"));
  await assert.rejects(device.close(), { status: "storage" });
  assert.ok(storage.isClosed);
});

test("a device that is closed twice is closed when either says so", async () => {
  const broker = brokerWith(HEIGHTS), storage = memory(), device = await deviceAt(broker, { storage });
  void device.close();
  await device.close();
  assert.ok(storage.isClosed);
});

test("a device that is closed answers nothing, although it knows the task", async () => {
  const broker = brokerWith(HEIGHTS), storage = memory(), device = await deviceAt(broker, { storage });
  await device.task("heights");
  await device.close();
  for (const call of [() => device.answer("heights", 172), () => device.admit("heights"), () => device.task("heights")]) {
    await assert.rejects(call(), { status: "network", message: /closed/ });
  }
  assert.deepEqual([storage.writes, broker.received], [[], []]);
});

test("whenever a device is closed, its report is charged and sent once, after the next start, or neither", async () => {
  for (let step = 0; step < 12; step++) {
    const broker = brokerWith(HEIGHTS), storage = memory(), { update } = storage;
    let device = null, steps = 0, closing = null;
    storage.update = (change) => {
      if (device && steps++ === step) closing = device.close();
      return update(change);
    };
    device = await deviceAt(broker, { storage });
    const running = device.answerEachRound("heights", () => 172, { sourceTimeout: 0 });
    await until(() => closing || (steps > 0 && broker.received.length && !device.waiting));
    await (closing ?? device.close());
    await running;
    const again = await deviceAt(broker, { storage: memory(storage.records) });
    assert.ok(await again.flush());
    const spent = (await again.ledger()).total, frames = new Set(broker.frames());
    await again.close();
    assert.equal(frames.size, Number(spent), `closed at step ${step}`);
  }
});

// ---- errors

test("an error names its cause: no connection, or no task", async () => {
  const broker = new Broker(), silent = await deviceAt(broker, { socketTo: () => () => new Promise(() => {}) });
  await assert.rejects(silent.answer("heights", 172, { timeout: 0.05 }), { status: "network", message: /no connection to ws:\/\/broker/ });
  await silent.close();
  await assert.rejects(silent.task("heights"), { status: "network", message: /closed/ });
  const device = await deviceAt(broker);
  await assert.rejects(device.answer("heights", 172, { timeout: 0.05 }), { status: "no_task", message: /heights/ });
  broker.isUp = false;
  broker.lose();
  await until(() => device.trouble);
  await assert.rejects(device.answer("heights", 172, { timeout: 0.05 }), { status: "network" });
  await device.close();
});

const EVENTS = {
  "an error and a close": (socket) => { socket.onerror(); socket.onclose(); },
  "an error alone": (socket) => socket.onerror(),
  "a close alone": (socket) => socket.onclose(),
};
for (const [kind, events] of Object.entries(EVENTS)) test(`a WebSocket that does not open is no connection: ${kind}`, async (context) => {
  const before = globalThis.WebSocket;
  globalThis.WebSocket = class { constructor() { setTimeout(() => events(this)); } };
  context.after(() => (globalThis.WebSocket = before));
  const device = await new hush.Device({ url: "ws://broker", storage: memory(), device: "d1" }).open();
  await until(() => device.trouble);
  await assert.rejects(device.answer("heights", 172, { timeout: 0.05 }), { status: "network", message: /no connection; check the address/ });
  await device.close();
});

test("an address that a page cannot reach is refused at once", () => {
  assert.throws(() => hush.webSocketTo("mqtt://broker"), { status: "argument", message: /mqtt:.*ws:/ });
});

/** A device with many tasks, and how many steps it has taken on its storage. */
async function deviceOfMany(count) {
  const many = Array.from({ length: count }, (_, i) => ({ ...HEIGHTS, id: `heights-${i}`, purpose: `Sizing ${i}` }));
  const broker = brokerWith(...many), storage = memory(), device = await deviceAt(broker, { storage });
  const { update } = storage;
  let steps = 0;
  storage.update = (step) => update((steps++, step));
  return { many, broker, device, steps: () => steps };
}

test("each of many tasks takes a few steps on the storage, and no step for the others", async () => {
  const { many, broker, device, steps } = await deviceOfMany(60);
  for (const { id } of many) void device.answerEachRound(id, () => 172, { sourceTimeout: 0 });
  await until(() => broker.received.length === many.length);
  await device.flush();
  await new Promise((resolve) => setTimeout(resolve, 50));
  assert.ok(steps() < 10 * many.length, `${steps()} steps for ${many.length} tasks`);
  await device.close();
});

test("answers that wait at the same time look once each whether they have arrived", async () => {
  const { many, broker, device, steps } = await deviceOfMany(60);
  const receipts = await Promise.all(many.map(({ id }) => device.answer(id, 172)));
  assert.deepEqual(new Set(receipts.map((it) => it.status)), new Set(["sent"]));
  assert.ok(steps() < 10 * many.length, `${steps()} steps for ${many.length} tasks`);
  await device.close();
});

test("a record that is damaged while the device runs stops it", async () => {
  const storage = memory(), device = await deviceAt(brokerWith(HEIGHTS, DAILY), { storage });
  await device.answer("heights", 172);
  const bytes = storage.records.get("task.heights").slice();
  bytes[bytes.length - 20] ^= 1;
  storage.records.set("task.heights", bytes);
  await assert.rejects(device.answer("daily", true), { status: "storage" });
  await device.close().catch(() => {});
});

test("a task that cannot be read, or is refused, does not keep the next one under its id from being answered", async () => {
  const broker = new Broker(), at = { now: OPENS }, device = await deviceAt(broker, { at }), receipts = [];
  broker.publish("hush/v1/tasks/heights", new TextEncoder().encode("{"));
  void device.answerEachRound("heights", () => 172, { sourceTimeout: 0, onReceipt: (it) => receipts.push(it) });
  await until(() => broker.subscriptions.length === 1);
  await new Promise((resolve) => setTimeout(resolve, 50));
  broker.task({ ...HEIGHTS, epsilon: "5" });
  await until(() => receipts.length === 1);
  broker.task(HEIGHTS);
  await until(() => receipts.length === 2);
  assert.deepEqual(receipts.map((it) => [it.status, it.reason]), [["refused", "epsilon"], ["queued", null]]);
  await until(() => broker.received.length === 1);
  await device.close();
});

test("arguments that cannot be meant are refused at once", () => {
  const options = { url: "ws://broker", storage: memory(), device: "d1" };
  for (const wrong of [{ maxEpsilon: 4 }, { lifetime: "x" }, { device: "-a" }, { device: undefined }, { storage: null }, { spread: -1 }, { keep: 1e9 }]) {
    assert.throws(() => new hush.Device({ ...options, ...wrong }), { name: "HushError", status: "argument" });
  }
});

test("the password is no part of a name or a record", async () => {
  const broker = brokerWith(HEIGHTS), storage = memory(), device = await deviceAt(broker, { storage, url: "ws://alice:s3cret@broker", device: undefined });
  await device.answer("heights", 172);
  await device.close();
  assert.equal(broker.received[0][0], "hush/v1/reports/heights/alice");
  assert.match(new TextDecoder().decode(broker.connects[0]), /s3cret/);
  assert.equal([...storage.records.values()].some((bytes) => new TextDecoder().decode(bytes).includes("s3cret")), false);
});

test("a hostile broker that floods, lies and cuts never gets a second draw", async () => {
  const broker = brokerWith(HEIGHTS), storage = memory();
  let count = 0;
  broker.answer = ({ type }, link) => {
    count++;
    if (type === 3 && count % 3 === 0) return link.lose(), true;
    if (type === 3 && count % 3 === 1) return link.reply(published("hush/v1/tasks/heights", hush.systemRandom(50))), true;
    return false;
  };
  const device = await deviceAt(broker, { storage });
  for (let i = 0; i < 8; i++) {
    await device.answer("heights", 172, { timeout: 0.3 }).catch((error) => assert.ok(error instanceof hush.HushError));
    broker.task(HEIGHTS);
    broker.lose();
  }
  await device.close();
  assert.ok(new Set(broker.frames()).size <= 1);
  assert.equal(stateOf(storage).spent()[0], 1n);
});
