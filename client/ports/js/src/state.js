// What a device has spent and sent: one record for each task, which holds charge and frames TOGETHER. Everything here is
// synchronous, so that a storage can run it inside one transaction.
//
// A record is 64 hexadecimal digits of SHA-256, a line end, and JSON:
//   id, title, purpose, digest   of the task that was admitted under this id; another payload under it is refused
//   closes                       in milliseconds, or null
//   spent                        the sum of all charges, "1/3"
//   answered                     the rounds that were answered, as ranges in order
//   last                         of the latest answer: round, cost, report id
//   memory                       of a sticky task; secret
//   entries                      frames that the broker has not acknowledged, or that are kept for recalls:
//                                round, topic, frame, due, delay, acked (0, or when), place (where it was sent)
//   recall                       ids that were served, when the last one began, and what is still to be sent for it
//   dropped                      how many kept frames were deleted early, because there was no room
import { encodeFrame, draw, reportTopic } from "./answer.js";
import { keptUntil } from "./recall.js";
import { HushError, add, decimalText, fraction, hex, need, unhex } from "./numbers.js";
import { sha256 } from "./sha256.js";
import { chooseOffer, currentRound } from "./task.js";

const PREFIX = "task.", MOST_WAITING = 1000, MOST_KEPT_BYTES = 256 << 10, MOST_RANGES = 64, MOST_RECALLS = 300;
const LAST_COUNTED = (300 + 2 * 86400) * 1000; // ms after `closes`: whatever was recalled, no aggregator counts later ones
const NOTHING = "0/1";

export const fractionText = (value) => value.join("/");
export const fractionOf = (text) => fraction(...text.split("/").map(BigInt));

const damaged = (name) => new HushError("storage", `the record ${name} is damaged; this device answers nothing more, for it cannot know what it spent`);

function readRecord(name, bytes) {
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(bytes), json = text.slice(65);
    if (hex(sha256(new TextEncoder().encode(json))) !== text.slice(0, 64) || text[64] !== "\n") throw damaged(name);
    const record = JSON.parse(json);
    if (record.version !== 1 || PREFIX + record.id !== name) throw damaged(name);
    return record;
  } catch {
    throw damaged(name);
  }
}

function writeRecord(record) {
  const json = JSON.stringify(record), encode = (text) => new TextEncoder().encode(text);
  return encode(`${hex(sha256(encode(json)))}\n${json}`);
}

/** Whether two records have the same bytes; a plain loop, for every step compares all of them. */
function areSame(a, b) {
  if (a === b) return true;
  if (a.length !== b.length) return false;
  for (let i = 0; i < a.length; i++) if (a[i] !== b[i]) return false;
  return true;
}

/**
 * All records of tasks in a storage, by task; throws a HushError "storage" if one is damaged.
 *
 * `known` is a map that one device keeps: what it has parsed, with the bytes. A record with the same bytes is not hashed
 * and parsed again, for each step reads all of them. Records are never changed in place.
 */
export class State {
  constructor(records, known = new Map()) {
    this.tasks = new Map();
    this.changed = new Set();
    for (const [name, bytes] of records) {
      if (!name.startsWith(PREFIX)) continue;
      let found = known.get(name);
      if (!found || !areSame(found.bytes, bytes)) known.set(name, (found = { bytes, record: readRecord(name, bytes) }));
      this.tasks.set(name.slice(PREFIX.length), found.record);
    }
  }

  /** What to store. */
  *changes() {
    for (const id of this.changed) yield [PREFIX + id, this.tasks.has(id) ? writeRecord(this.tasks.get(id)) : null];
  }

  spent(purpose = null) {
    const charged = [...this.tasks.values()].filter((it) => purpose === null || it.purpose === purpose);
    return charged.reduce((sum, it) => add(sum, fractionOf(it.spent)), fraction(0n));
  }

  /** The record of a task, new if there is none; HushError "changed" if another task was admitted under its id. */
  recordOf(task) {
    const digest = hex(task.digest), found = this.tasks.get(task.id);
    need(!found || found.digest === digest, "changed", "this device has admitted another task under the same id");
    return found ?? {
      version: 1, id: task.id, title: task.title, purpose: task.purpose, digest, closes: task.closes ?? null, spent: NOTHING,
      answered: [], last: null, memory: null, entries: [], recall: { served: [], began: 0, id: null, over: 0, due: {} }, dropped: 0,
    };
  }

  put(record) {
    this.tasks.set(record.id, record);
    this.changed.add(record.id);
  }

  /**
   * Decide whether a round of a task is answered now, and at what cost; no value is in scope. Returns the record, and
   * either `earlier`, the answer that the round has, or the decision.
   */
  decide(task, { now, limits, epsilon = null }) {
    const record = this.recordOf(task), round = currentRound(task, now / 1000);
    if (record.answered.some(([first, last]) => first <= round && round <= last)) return { record, round, earlier: true };
    need(!task.sticky || limits.sticky, "sticky", "its repeated answer shows when the value changes, which this device does not allow");
    const charged = record.memory !== null, spent = this.spent(task.purpose), spentInAll = this.spent();
    const decision = chooseOffer(task, limits, { spent, spentInAll, charged, asked: epsilon });
    need(record.entries.filter((it) => !it.acked).length < MOST_WAITING, "full", "too many reports wait for the broker");
    return { record, round, ...decision };
  }

  /** Remember that a task was admitted: from now on, no other is answered under its id. */
  admit(task, about) {
    const decided = this.decide(task, about);
    if (!this.tasks.has(task.id)) this.put(decided.record);
    return decided;
  }

  /** Decide and draw; charge, frame and memory are in the record that is stored next. */
  answer(task, value, { sender, due, delay, random, ...about }) {
    const decided = this.decide(task, about), { record, round, offer, cost, earlier } = decided;
    if (earlier) return decided;
    const topic = reportTopic(task.id, sender), memory = readMemory(record.memory);
    const report = draw(task, value, { round, offer, memory, random });
    this.put({
      ...record, spent: fractionText(add(fractionOf(record.spent), cost)), answered: withRound(record.answered, round),
      last: { round, cost: fractionText(cost), report: hex(report.id) }, memory: writeMemory(report.memory),
      entries: [...record.entries, { round, topic, frame: hex(encodeFrame([report])), due, delay, acked: 0, place: "" }],
    });
    return { ...decided, report };
  }

  /** Note that the broker has acknowledged frames: they are kept, unless `keep` is 0. `rounds` is a set of rounds. */
  acknowledge(id, rounds, { now, place }) {
    const record = this.tasks.get(id), isNew = (it) => rounds.has(it.round) && !it.acked;
    if (!record?.entries.some(isNew)) return;
    this.put({ ...record, entries: record.entries.map((it) => (isNew(it) ? { ...it, acked: now, place } : it)) });
  }

  /** Delete what is kept no longer, and what no aggregator counts any more. Charges stay. `keep` is in seconds. */
  expire({ now, keep }) {
    for (const record of this.tasks.values()) {
      const { closes, recall } = record;
      const isOver = ({ round, acked }) => {
        if (!acked) return closes !== null && closes + LAST_COUNTED <= now;
        const scheduled = round in recall.due ? { spread: recall.over } : null;
        return keptUntil(Math.min(acked, now) / 1000, closes === null ? Infinity : closes / 1000, keep, scheduled) * 1000 <= now;
      };
      let entries = record.entries.filter((it) => !isOver(it)), { dropped } = record;
      const size = () => entries.reduce((sum, it) => sum + it.frame.length / 2 + it.topic.length + it.place.length, 0);
      for (let oldest; size() > MOST_KEPT_BYTES && (oldest = entries.find((it) => it.acked)); dropped++) entries = entries.filter((it) => it !== oldest);
      if (entries.length < record.entries.length) this.put({ ...record, entries, dropped, recall: withDue(recall, onlyFor(entries, recall.due)) });
    }
  }

  /** Begin to serve a recall: `due` has a time for the round of each frame that it asks for. */
  beginRecall(id, { now, name, spread, due }) {
    const record = this.tasks.get(id), earlier = record.recall.due;
    for (const [round, time] of Object.entries(earlier)) due[round] = Math.min(time, due[round] ?? Infinity);
    this.put({ ...record, recall: { ...record.recall, began: now, id: name, over: spread, due } });
  }

  /** Note the rounds whose frames were sent again; a recall without a remainder was served. */
  continueRecall(id, rounds) {
    const record = this.tasks.get(id);
    if (!record?.recall.id) return;
    const { recall } = record, due = Object.fromEntries(Object.entries(recall.due).filter(([round]) => !rounds.has(Number(round))));
    this.put({ ...record, recall: withDue(recall, due) });
  }

  /** Allow another task under an id; HushError "answered" if something was charged for it. */
  forget(id) {
    const record = this.tasks.get(id);
    need(!record || record.spent === NOTHING, "answered", "this task was answered; what it cost stays charged");
    if (this.tasks.delete(id)) this.changed.add(id);
  }
}

/** A recall with what is still to be sent for it; with nothing, it was served. */
function withDue(recall, due) {
  if (recall.id === null || Object.keys(due).length) return { ...recall, due };
  return { ...recall, due, served: [...recall.served, recall.id].slice(-MOST_RECALLS), id: null };
}

const onlyFor = (entries, due) => Object.fromEntries(Object.entries(due).filter(([round]) => entries.some((it) => it.round === Number(round))));

/** The ranges with one more round; beyond 64 ranges the gaps between the earliest count as answered. */
function withRound(ranges, round) {
  const merged = [];
  for (const [first, last] of [...ranges, [round, round]].sort((a, b) => a[0] - b[0])) {
    const before = merged.at(-1);
    if (before && first <= before[1] + 1) before[1] = Math.max(before[1], last);
    else merged.push([first, last]);
  }
  return merged.length > MOST_RANGES ? [[merged[0][0], merged[1][1]], ...merged.slice(2)] : merged;
}

const writeMemory = (memory) => memory && { ...memory, reports: memory.reports.map(String), threshold: `${memory.threshold}`, substitute: `${memory.substitute}` };
const readMemory = (memory) => memory && { reports: memory.reports.map(BigInt), threshold: BigInt(memory.threshold), substitute: BigInt(memory.substitute) };

/** The integers in the body of a frame of one report. */
export function bodyOf(frame) {
  const bytes = typeof frame === "string" ? unhex(frame) : frame, view = new DataView(bytes.buffer, bytes.byteOffset);
  return Array.from({ length: (bytes.length - 40) / 8 }, (_, i) => view.getBigInt64(40 + 8 * i));
}

/** What was spent on each purpose and each task, as decimal text. */
export function statement(state, limits) {
  const purposes = [...new Set([...state.tasks.values()].map((it) => it.purpose))];
  const spent = (purpose) => decimalText(state.spent(purpose));
  return {
    total: spent(null),
    purposes: purposes.map((purpose) => ({ purpose, spent: spent(purpose), cap: limits.lifetime })),
    tasks: [...state.tasks.values()].map((it) => ({
      id: it.id, title: it.title, purpose: it.purpose, digest: it.digest, spent: decimalText(fractionOf(it.spent)),
      rounds: it.answered.reduce((sum, [first, last]) => sum + last - first + 1, 0),
      waiting: it.entries.filter((one) => !one.acked).length, kept: it.entries.filter((one) => one.acked).length, dropped: it.dropped,
    })),
  };
}
