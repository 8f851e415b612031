// Recalls for Node.js, beside hush_node.mjs: a broker may have forgotten what it acknowledged, and the frames of a task are
// asked for once more. The caller keeps the frames, and the ids that it has obeyed; docs/wire.md has the rules.
import { isUtf8 } from "node:buffer";
import { randomBytes } from "node:crypto";
import { HushError, below, scan } from "./hush_node.mjs";

export const RECALL_BYTES = 512, RECALL_EVERY = 3600, KEEP_SECONDS = 7 * 86400;
const SKEW = 300, LONGEST_SPREAD = 86400, ID = /^[a-z0-9][a-z0-9-]{0,63}$/;
const isHex = (it, size) => typeof it === "string" && it.length === 2 * size && /^[0-9a-fA-F]*$/.test(it);

/** What came on the topic of recalls; null where it is none: go on as if nothing had come. `spread` is in seconds. */
export function readRecall(payload) {
  const json = payload.length <= RECALL_BYTES && isUtf8(payload) ? Buffer.from(payload).toString() : "";
  let it, words;
  try { words = scan(json), it = JSON.parse(json); } catch { return null; }
  const known = it instanceof Object && Object.keys(it).sort().join() === "digest,id,over,task,v";
  const whole = ["v", "over"].every((name) => /^\d+$/.test(words.get(name))); // no 1.0, 1e0 nor -0
  if (!known || !whole || json.includes("\\")) return null;
  const legal = it.v === 1 && typeof it.task === "string" && ID.test(it.task) && isHex(it.digest, 32) && isHex(it.id, 16);
  if (!legal || !Number.isSafeInteger(it.over)) return null;
  const [digest, id] = [it.digest, it.id].map((text) => Buffer.from(text, "hex"));
  return Object.freeze({ task: it.task, digest, id, spread: Math.min(Math.max(it.over, 1), LONGEST_SPREAD) });
}

export function recallTopic(task) {
  if (!ID.test(task)) throw new HushError("argument", "the task is not a valid name");
  return `hush/v1/recalls/${task}`;
}

/** Whether a recall asks for a frame of this task, which has the first 16 bytes of its digest. */
export const isRecalled = (recall, task, frame) =>
  recall.task === task && frame.length >= 24 && Buffer.from(frame).subarray(4, 20).equals(recall.digest.subarray(0, 16));

/** After how many milliseconds a frame is to go: uniform, one draw for each frame. */
export function recallDelay(recall, random = randomBytes) {
  let left = 64; // no honest source is rejected so often
  const bounded = (size) => {
    if (left-- <= 0) throw new HushError("random", "the source of randomness is not random");
    return random(size);
  };
  return Number(below(1000n * BigInt(recall.spread) + 1n, bounded));
}

/** When a frame that was acknowledged then ends, in Unix seconds; Infinity where nothing but its sending ends it.
 * `closes` is the task's, or Infinity; `keep` is at most KEEP_SECONDS, and 0 keeps nothing; `scheduled` is the recall
 * that has asked for the frame and for which it is not sent yet. */
export function keptUntil(acknowledged, closes, keep, scheduled = null) {
  if (keep <= 0) return acknowledged;
  if (scheduled) return closes + SKEW + 2 * scheduled.spread;
  return Math.min(closes + SKEW, acknowledged + Math.min(keep, KEEP_SECONDS));
}
