// A device: it knows the tasks of a broker, answers each round at most once, and sends the same bytes until the broker
// has acknowledged them. Charge and report are stored together, before the first byte leaves.
import { checkType, reportedText } from "./answer.js";
import { connect, notify, webSocketTo } from "./mqtt.js";
import { HushError, below, decimalFraction, decimalText, hex, need, systemRandom, unhex } from "./numbers.js";
import { KEEP_SECONDS, RECALL_EVERY, isRecalled, readRecall, recallDelay, recallTopic } from "./recall.js";
import { State, bodyOf, fractionOf, statement } from "./state.js";
import { readTask } from "./task.js";

const TASKS = "hush/v1/tasks/", RECALLS = "hush/v1/recalls/", CACHE = "cache.";
const MOST_TASKS = 1000, WINDOW = 16, LINGER_MS = 20, NAP_MS = 60000, STEADY_MS = 30000, LONGEST_BACKOFF_MS = 30000;

/** Address, user and password of a URL; the password stays out of the name. */
function readUrl(url) {
  const parsed = new URL(url), [username, password] = [parsed.username, parsed.password].map((it) => decodeURIComponent(it) || undefined);
  parsed.username = parsed.password = "";
  return { address: parsed.href, username, password };
}

/** One device with its connection and its storage. index.d.ts has its options, and what its methods promise. */
export class Device {
  #options; #storage; #open; #address; #login; #sender; #place; #limits;
  #connection = null; #tasks = new Map(); #wanted = new Set(); #forbidden = new Set(); #listeners = new Set();
  #inFlight = new Set(); #acknowledged = new Map(); #resent = new Map(); #recalls = new Map(); #kept = new Set();
  #parsed = new Map(); #unacknowledged = new Set(); #asked = new Set(); #unconnected = null; #unstored = null;
  #version = 0; #closed = false; #closing = null; #sleepers = new Set(); #running = null; #pumping = false; #pumpAgain = false; #timer = null; #flushTimer = null;

  constructor({ url, storage, device, username, password, socketTo = webSocketTo, maxEpsilon = "4", lifetime = "4", total = null,
    sticky = false, spread = 1, keep = KEEP_SECONDS, recallEvery = RECALL_EVERY, random = systemRandom, clock = Date.now, onChange = () => {} }) {
    for (const [name, limit] of Object.entries({ maxEpsilon, lifetime, total })) {
      need(limit === null || (typeof limit === "string" && decimalFraction(limit)), "argument", `${name} is not exact decimal text; write for example "4"`);
    }
    need(storage?.update, "argument", "storage is missing; open one with openIndexedDB, or openDirectory in node");
    need(spread >= 0 && spread <= KEEP_SECONDS && keep >= 0 && keep <= KEEP_SECONDS, "argument", "spread or keep is not from 0 to a week");
    const { address, ...login } = readUrl(url);
    this.#login = { username: username ?? login.username, password: password ?? login.password };
    this.#sender = this.#login.username ?? device;
    need(/^[A-Za-z0-9][\w.@:-]{0,127}$/.test(this.#sender ?? ""), "argument", "the user or the device is not a valid name; use letters, digits and . _ @ : -");
    this.#options = { name: device ?? this.#sender, spread, keep, recallEvery, random, clock, onChange };
    this.#limits = Object.freeze({ maxEpsilon, lifetime, total, sticky });
    this.#storage = storage;
    this.#address = address;
    this.#open = socketTo(address);
    this.#place = `${address} ${this.#sender}`;
  }

  get connected() { return this.#connection !== null; }
  get trouble() { return (this.#unstored ?? this.#unconnected)?.message ?? ""; }
  waiting = 0;

  async open() {
    await this.#update((state) => this.#learn(state));
    this.#running = this.#stayConnected();
    globalThis.addEventListener?.("online", this.#retry);
    return this;
  }

  close() {
    return (this.#closing ??= this.#end());
  }

  async #end() {
    this.#closed = true;
    globalThis.removeEventListener?.("online", this.#retry);
    this.#connection?.close("this device is closed");
    for (const stop of this.#asked) stop();
    this.#retry();
    await this.#running;
    try {
      await this.#writeAcknowledged();
    } finally {
      for (const timer of [this.#timer, ...[...this.#recalls.values()].map((it) => it.timer)]) clearTimeout(timer);
      await this.#storage.close();
    }
  }

  #retry = () => {
    for (const wake of [...this.#sleepers, ...this.#listeners]) wake();
  };

  /** Sleep for at most a minute, for the clock may be set, or the machine sleep. */
  #sleep(ms) {
    return new Promise((resolve) => {
      const wake = () => {
        clearTimeout(timer);
        this.#sleepers.delete(wake);
        resolve();
      };
      const timer = setTimeout(wake, Math.max(0, Math.min(ms, NAP_MS)));
      this.#sleepers.add(wake);
      if (this.#closed) wake();
    });
  }

  #now() { return Math.floor(this.#options.clock()); }
  #changed() {
    this.#version++;
    notify(this.#options.onChange, this);
    for (const listener of [...this.#listeners]) listener();
  }

  /** Run a step on the state inside one transaction; the result is durable before this resolves. */
  async #update(step) {
    let result;
    await this.#store((records) => {
      const state = new State(records, this.#parsed), about = { now: this.#now(), keep: this.#options.keep };
      state.expire(about);
      result = step(state, records);
      this.#unacknowledged.clear();
      for (const { id, entries } of state.tasks.values()) {
        for (const { round, acked } of entries) if (!acked) this.#unacknowledged.add(answerOf(id, round));
      }
      this.waiting = this.#unacknowledged.size;
      return [...state.changes(), ...(result?.store ?? [])];
    });
    return result;
  }

  /** Run a step on the storage; `trouble` says that it fails, until it works again. */
  async #store(step) {
    let failure = null;
    try {
      await this.#storage.update(step);
    } catch (error) {
      if (error?.status === "storage") failure = error;
      throw error;
    } finally {
      const before = this.trouble;
      this.#unstored = failure;
      if (this.trouble !== before) this.#changed();
    }
  }

  // ---- the connection

  async #stayConnected() {
    for (let pause = 500; !this.#closed; ) {
      const began = Date.now();
      try {
        const onMessage = (topic, payload) => this.#receive(topic, payload);
        this.#connection = await connect(this.#open, { onMessage, name: this.#options.name, ...this.#login });
        if (this.#closed) this.#connection.close("this device is closed");
        this.#unconnected = null;
        await this.#subscribeAll();
        this.#changed();
        this.#pump();
        throw await this.#connection.closed;
      } catch (error) {
        this.#connection?.close(error instanceof HushError ? error : `${error}`);
        this.#connection = null;
        this.#inFlight.clear();
        for (const known of this.#tasks.values()) known.isDelivered = false;
        this.#unconnected = this.#closed ? null : error;
        this.#changed();
        if (Date.now() - began > STEADY_MS) pause = 500;
      }
      const jittered = pause / 2 + Number(below(BigInt(pause / 2), systemRandom));
      await this.#sleep(jittered);
      pause = Math.min(2 * pause, LONGEST_BACKOFF_MS);
    }
  }

  async #subscribeAll() {
    this.#forbidden.clear();
    for (const topic of [...this.#wanted, ...[...this.#kept].map(recallTopic)]) await this.#subscribe(topic);
  }

  async #subscribe(topic) {
    try {
      await this.#connection?.subscribe(topic);
    } catch (error) {
      if (error.status !== "forbidden") return; // the connection is lost: the next one subscribes again
      this.#forbidden.add(topic);
      this.#changed();
    }
  }

  #receive(topic, payload) {
    if (topic.startsWith(TASKS)) this.#receiveTask(topic.slice(TASKS.length), payload);
    else if (topic.startsWith(RECALLS)) this.#receiveRecall(topic.slice(RECALLS.length), payload);
  }

  // ---- tasks

  #receiveTask(id, payload) {
    const isWanted = this.#wanted.has(TASKS + id) || this.#wanted.has(`${TASKS}+`);
    if (!isWanted || (this.#tasks.size >= MOST_TASKS && !this.#tasks.has(id))) return;
    const known = this.#tasks.get(id), isSame = known && areSame(known.payload, payload);
    if (isSame) known.isDelivered = true;
    else this.#tasks.set(id, { payload, isDelivered: true, ...this.#read(id, payload) });
    this.#changed();
  }

  #read(id, payload) {
    if (!payload.length) return { task: null, error: null };
    try {
      const task = readTask(payload);
      need(task.id === id, "task", "it is published under another id");
      return { task, error: null };
    } catch (error) {
      return { task: null, error };
    }
  }

  #want(topic) {
    if (this.#wanted.has(topic)) return;
    this.#wanted.add(topic);
    if (this.#connection) void this.#subscribe(topic);
  }

  watchAll() {
    this.#want(`${TASKS}+`);
  }

  /** The tasks that are known now. */
  get tasks() {
    return [...this.#tasks.values()].map((it) => it.task).filter((task) => task !== null);
  }

  async task(id, { timeout = 30 } = {}) {
    if (!this.#wanted.has(`${TASKS}+`)) this.#want(TASKS + id);
    const end = Date.now() + 1000 * timeout;
    for (;;) {
      const known = this.#tasks.get(id), topic = TASKS + id;
      if (known && !this.#closed && (known.isDelivered || !this.connected)) {
        if (known.error) throw known.error;
        if (known.task) return known.task;
      }
      if (!known && !this.connected && this.#unconnected) await this.#loadCached(id);
      if (this.#tasks.get(id) !== known) continue;
      need(!this.#forbidden.has(topic), "forbidden", "the broker forbids this device to read the task");
      if (Date.now() >= end || this.#closed) throw this.#missing(id);
      await this.#change(end - Date.now());
    }
  }

  /** Why a task is not there. */
  #missing(id) {
    const lost = (why) => new HushError("network", why);
    if (this.#closed) return lost("this device is closed");
    if (!this.connected) return this.#unconnected ?? lost(`no connection to ${this.#address} yet; give it more time`);
    return new HushError("no_task", `no task ${id} is published`);
  }

  async #loadCached(id) {
    let payload = null;
    await this.#store((records) => {
      const found = records.get(CACHE + id), record = new State(records, this.#parsed).tasks.get(id);
      payload = found && record && this.#read(id, found).task && hex(this.#read(id, found).task.digest) === record.digest ? found : null;
      return [];
    });
    if (payload && !this.#tasks.has(id)) this.#tasks.set(id, { payload, isDelivered: false, ...this.#read(id, payload) });
  }

  /**
   * Wait for so many milliseconds at most, or until `isOver`: without it, for a change since that version.
   * What waits for one task of many must not do its work at each change of another one.
   */
  #change(ms, since = this.#version, isOver = () => this.#version !== since) {
    if (isOver()) return Promise.resolve();
    return new Promise((resolve) => {
      const end = () => {
        clearTimeout(timer);
        this.#listeners.delete(listener);
        resolve();
      };
      const listener = () => (this.#closed || isOver()) && end();
      const timer = setTimeout(end, Math.max(0, Math.min(ms, NAP_MS)));
      this.#listeners.add(listener);
    });
  }

  // ---- answers

  async admit(id, { timeout = 30, epsilon = null } = {}) {
    const task = await this.task(id, { timeout });
    return this.#decided(task, (state) => state.admit(task, { now: this.#now(), limits: this.#limits, epsilon }));
  }

  async answer(id, value, { timeout = 30, epsilon = null, due = null } = {}) {
    const end = Date.now() + 1000 * timeout, task = await this.task(id, { timeout });
    checkType(task, value);
    const now = this.#now(), delay = due === null ? this.#delay(task, now) : Math.max(0, due - now);
    const about = { now, limits: this.#limits, epsilon, sender: this.#sender, due: now + delay, delay, random: this.#options.random };
    const receipt = await this.#decided(task, (state) => state.answer(task, value, about));
    if (receipt.status !== "queued") return receipt;
    this.#pump();
    const isDone = () => !this.#unacknowledged.has(answerOf(id, receipt.round));
    while (!this.#closed) {
      if (!(await this.#isWaiting(id, receipt.round))) return copied(receipt, { status: "sent" });
      if (Date.now() >= end) break;
      await this.#change(end - Date.now(), 0, isDone);
    }
    return receipt;
  }

  /** A uniform delay in milliseconds, drawn before anything else; if the task closes soon, within half of the rest. */
  #delay(task, now) {
    const left = task.closes === undefined ? Infinity : Math.max(0, (task.closes - now) / 2);
    const longest = Math.floor(Math.min(1000 * this.#options.spread, left));
    return longest ? Number(below(BigInt(longest) + 1n, systemRandom)) : 0;
  }

  async #decided(task, decide) {
    const base = { task: task.id, reason: null, round: null, cap: this.#limits.lifetime, report: null, body: null, text: null };
    try {
      const result = await this.#update((state, records) => {
        const decided = decide(state);
        const store = records.has(CACHE + task.id) ? [] : [[CACHE + task.id, this.#tasks.get(task.id).payload]];
        return { ...decided, spent: decimalText(state.spent(task.purpose)), now: state.tasks.get(task.id), store };
      });
      const { round, earlier, report, cost, spent, now } = result;
      if (earlier) {
        const entry = now.entries.find((it) => it.round === round), last = now.last?.round === round ? now.last : null;
        const body = entry ? bodyOf(entry.frame) : null;
        return { ...base, status: "answered", round, spent, epsilon: last && decimalText(fractionOf(last.cost)), report: last?.report ?? null,
          waiting: Boolean(entry && !entry.acked), ...said(task, body) };
      }
      const receipt = { ...base, status: report ? "queued" : "open", round, spent, epsilon: decimalText(cost) };
      if (!report) return receipt;
      Object.assign(receipt, { report: hex(report.id), ...said(task, report.body) });
      return Object.defineProperty(receipt, "value", { value: report.value }); // reveals something of the value: never shown or stored
    } catch (error) {
      if (!(error instanceof HushError) || ["storage", "random", "argument"].includes(error.status)) throw error;
      return { ...base, status: "refused", reason: error.status, message: error.message };
    }
  }

  async #isWaiting(id, round) {
    if (this.#acknowledged.get(id)?.has(round)) return false;
    let found = false;
    await this.#update((state) => {
      found = state.tasks.get(id)?.entries.some((it) => it.round === round && !it.acked) ?? false;
    });
    return found;
  }

  async flush({ timeout = 30 } = {}) {
    const end = Date.now() + 1000 * timeout;
    for (;;) {
      await this.#writeAcknowledged();
      await this.#update(() => {});
      if (!this.waiting) return true;
      if (Date.now() >= end) return false;
      await this.#change(Math.min(end - Date.now(), 1000));
    }
  }

  async answerEachRound(id, source, { sourceTimeout = 10, onReceipt = () => {} } = {}) {
    need(sourceTimeout >= 0 && sourceTimeout <= KEEP_SECONDS, "argument", `sourceTimeout is not from 0 to ${KEEP_SECONDS} seconds, got ${sourceTimeout}`);
    for (let told = "", pause = 1000; !this.#closed; ) {
      const seen = this.#version;
      let task = null, known = null, isSettled = true, wait = NAP_MS;
      try {
        task = await this.task(id, { timeout: 60 });
        known = this.#tasks.get(id);
        const open = await this.admit(id, { timeout: 60 });
        if (open.status === "open") await this.#answerFrom(task, source, sourceTimeout, onReceipt);
        const refusal = open.status === "refused" ? `${open.reason} ${hex(task.digest)}` : "";
        if (refusal && refusal !== told) notify(onReceipt, open);
        told = refusal;
        isSettled = open.reason !== "full";
        wait = untilNextRound(task, this.#now());
        pause = 1000;
      } catch (error) {
        if (error?.status === "storage") {
          await this.#sleep(pause);
          pause = Math.min(2 * pause, NAP_MS);
          continue;
        }
        isSettled = false; // the next payload or connection may be right
      }
      if (this.#closed) break;
      const isOther = () => this.#tasks.get(id) !== known;
      await this.#change(wait, seen, isSettled ? isOther : undefined);
    }
  }

  async #answerFrom(task, source, sourceTimeout, onReceipt) {
    if (this.#closed) return;
    const now = this.#now(), patience = this.#half(task, now, sourceTimeout), due = now + patience + this.#delay(task, now);
    const value = await this.#ask(task, source, patience);
    await this.task(task.id); // the connection may have been lost meanwhile
    if (this.#closed) return;
    notify(onReceipt, await this.answer(task.id, value, { timeout: 0, due }));
  }

  #half(task, now, seconds) {
    return Math.min(1000 * seconds, task.closes === undefined ? Infinity : Math.max(0, (task.closes - now) / 2));
  }

  /** The value of a source, null if it has none in time. Nothing shortens the time but the end of the device. */
  async #ask(task, source, ms) {
    let stop;
    const isOver = new Promise((resolve) => (stop = () => resolve(null))), timer = setTimeout(stop, ms);
    this.#asked.add(stop);
    try {
      const value = await Promise.race([Promise.resolve().then(source), isOver]);
      checkType(task, value);
      return value;
    } catch {
      return null; // a source that fails is a missing value
    } finally {
      clearTimeout(timer);
      this.#asked.delete(stop);
    }
  }

  async ledger() {
    let result;
    await this.#update((state) => { result = statement(state, this.#limits); });
    return result;
  }

  async forget(id) {
    await this.#update((state) => {
      state.forget(id);
      return { store: [[CACHE + id, null]] };
    });
  }

  // ---- sending

  #learn(state) {
    for (const { id, entries } of state.tasks.values()) if (this.#options.keep && entries.some((it) => it.acked)) this.#keep(id);
  }

  #keep(id) {
    if (this.#kept.has(id)) return;
    this.#kept.add(id);
    void this.#subscribe(recallTopic(id));
  }

  /** Send what is due; one run at a time. */
  async #pump() {
    this.#pumpAgain = true;
    if (this.#pumping) return;
    this.#pumping = true;
    try {
      while (this.#pumpAgain && this.#connection && !this.#closed) {
        this.#pumpAgain = false;
        await this.#sendDue();
      }
    } catch {
      // `trouble` says why; the next answer or connection tries again
    } finally {
      this.#pumping = false;
    }
  }

  async #sendDue() {
    const now = this.#now();
    let entries = [];
    await this.#update((state) => { entries = this.#entriesOf(state); });
    const latest = (entry) => Math.min(entry.due, now + entry.delay); // a clock that was set back delays nothing
    const due = entries.filter((it) => latest(it) <= now && !this.#inFlight.has(keyOf(it)) && !this.#isDone(it));
    for (const entry of due.slice(0, WINDOW - this.#inFlight.size)) void this.#send(entry);
    clearTimeout(this.#timer);
    const next = Math.min(...entries.filter((it) => latest(it) > now).map((it) => latest(it) - now));
    if (next < Infinity) this.#timer = setTimeout(() => this.#pump(), Math.min(next, NAP_MS));
  }

  /** Frames to be sent: those that were never acknowledged, and those that a recall asks for. */
  #entriesOf(state) {
    return [...state.tasks.values()].flatMap(({ id, entries, recall }) => entries.flatMap((it) => {
      if (!it.acked) return [{ id, ...it, isRecalled: false }];
      const due = recall.due[it.round];
      return due === undefined || it.place !== this.#place ? [] : [{ id, ...it, due, delay: 1000 * recall.over, isRecalled: true }];
    }));
  }

  /** Whether a frame was acknowledged, perhaps since the state was read. */
  #isDone({ id, round, isRecalled: isAgain }) {
    return (isAgain ? this.#resent : this.#acknowledged).get(id)?.has(round) ?? false;
  }

  async #send(entry) {
    const connection = this.#connection, key = keyOf(entry);
    this.#inFlight.add(key);
    try {
      await connection.publish(entry.topic, unhex(entry.frame));
    } catch {
      return; // the connection is lost: the next one sends the same bytes
    } finally {
      if (connection === this.#connection) this.#inFlight.delete(key);
    }
    const done = entry.isRecalled ? this.#resent : this.#acknowledged;
    done.set(entry.id, (done.get(entry.id) ?? new Set()).add(entry.round));
    this.#flushTimer ??= setTimeout(() => this.#writeAcknowledged().then(() => this.#pump(), () => {}), LINGER_MS);
  }

  /** Store acknowledgements, those of a few milliseconds together; of a recall, once all its frames are sent. */
  async #writeAcknowledged() {
    clearTimeout(this.#flushTimer);
    this.#flushTimer = null;
    const acknowledged = new Map([...this.#acknowledged].map(([id, rounds]) => [id, new Set(rounds)]));
    await this.#update((state) => {
      for (const [id, rounds] of acknowledged) state.acknowledge(id, rounds, { now: this.#now(), place: this.#place });
      for (const [id, rounds] of this.#resent) {
        const due = Object.keys(state.tasks.get(id)?.recall.due ?? {});
        if (this.#closed || due.every((round) => rounds.has(Number(round)))) state.continueRecall(id, rounds);
      }
      state.expire({ now: this.#now(), keep: this.#options.keep });
      this.#learn(state);
    });
    for (const [id, rounds] of acknowledged) for (const round of rounds) this.#acknowledged.get(id).delete(round);
    this.#changed();
  }

  // ---- recalls

  #receiveRecall(id, payload) {
    clearTimeout(this.#recalls.get(id)?.timer);
    this.#recalls.delete(id);
    const recall = readRecall(payload);
    if (!this.#kept.has(id) || recall?.task !== id) return;
    this.#recalls.set(id, { recall, timer: null });
    void this.#serve(id, recall).catch(() => {});
  }

  /** Serve a recall that is new, one of a task in an hour; a newer one waits, and replaces one that waits. */
  async #serve(id, recall) {
    const now = this.#now(), name = hex(recall.id), every = 1000 * this.#options.recallEvery;
    const isCurrent = () => !this.#closed && this.#recalls.get(id)?.recall === recall;
    let wait = 0, isNew = false;
    await this.#writeAcknowledged();
    await this.#update((state) => {
      const record = state.tasks.get(id);
      if (!isCurrent() || !record || record.recall.served.includes(name) || record.recall.id === name) return;
      const asked = record.entries.filter((it) => it.acked && it.place === this.#place && isRecalled(recall, id, unhex(it.frame)));
      wait = record.recall.began ? Math.min(record.recall.began + every - now, every) : 0;
      if (!asked.length || wait > 0) return;
      isNew = true;
      const due = Object.fromEntries(asked.map((it) => [it.round, now + recallDelay(recall)]));
      state.beginRecall(id, { now, name, spread: recall.spread, due });
    });
    if (isNew) {
      this.#resent.delete(id);
      await this.#pump();
    } else if (wait > 0 && isCurrent()) {
      const again = () => this.#serve(id, recall).catch(() => {});
      this.#recalls.get(id).timer = setTimeout(again, Math.min(wait, NAP_MS));
    }
  }
}

const areSame = (a, b) => a.length === b.length && a.every((byte, i) => byte === b[i]);
const answerOf = (id, round) => `${id} ${round}`;
const keyOf = ({ id, round, isRecalled: isAgain }) => `${id} ${round} ${isAgain}`;
const said = (task, body) => ({ body: body && body.map(Number), text: body && reportedText(task, body) });
const copied = (receipt, changes) => Object.defineProperty({ ...receipt, ...changes }, "value", { value: receipt.value });

/** Milliseconds until something may change about a task: at most a minute, for the clock may be set. */
function untilNextRound(task, now) {
  if (!task) return NAP_MS;
  if (task.opens !== undefined && now < task.opens) return Math.min(task.opens - now, NAP_MS);
  if (!task.roundEvery || task.opens === undefined) return NAP_MS;
  const every = 1000 * task.roundEvery;
  return Math.min(every - ((now - task.opens) % every), NAP_MS);
}
