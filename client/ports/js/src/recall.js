// Recalls: a broker may have lost what it acknowledged, and the aggregator asks for the same bytes once more.
import { decodeText, parseJson } from "./json.js";
import { below, bounded, need, systemRandom, unhex, hex } from "./numbers.js";
import { ID } from "./task.js";

export const RECALL_BYTES = 512, RECALL_EVERY = 3600, KEEP_SECONDS = 7 * 86400;
const SKEW = 300, LONGEST_SPREAD = 86400;
const isHex = (it, size) => typeof it === "string" && it.length === 2 * size && /^[0-9a-fA-F]*$/.test(it);

/** A recall from its bytes; null for anything else, which a device ignores. `spread` is in seconds. */
export function readRecall(payload) {
  if (payload.length > RECALL_BYTES) return null;
  let text, it;
  try {
    text = decodeText(payload);
    it = parseJson(text, { depth: 1, keys: 16 });
  } catch {
    return null;
  }
  const isKnown = it instanceof Map && [...it.keys()].sort().join() === "digest,id,over,task,v";
  if (!isKnown || text.includes("\\") || /:\s*-/.test(text)) return null;
  const [v, task, digest, id, over] = ["v", "task", "digest", "id", "over"].map((name) => it.get(name));
  const isLegal = v === 1n && typeof task === "string" && ID.test(task) && isHex(digest, 32) && isHex(id, 16);
  if (!isLegal || typeof over !== "bigint" || over >= 1n << 53n) return null;
  const spread = Math.min(Math.max(Number(over), 1), LONGEST_SPREAD);
  return Object.freeze({ task, digest: unhex(digest), id: unhex(id), spread });
}

/** The topic of the recalls of a task. */
export function recallTopic(task) {
  need(ID.test(task), "argument", "the task is not a valid name");
  return `hush/v1/recalls/${task}`;
}

/** Whether a recall asks for a frame of this task: the frame has the first 16 bytes of its digest. */
export const isRecalled = (recall, task, frame) =>
  recall.task === task && frame.length >= 24 && hex(frame.slice(4, 20)) === hex(recall.digest.slice(0, 16));

/** After how many milliseconds a recalled frame is sent: uniform, one draw for each frame. */
export const recallDelay = (recall, random = systemRandom) =>
  Number(below(1000n * BigInt(recall.spread) + 1n, bounded(random, 64)));

/**
 * When a frame that was acknowledged then ends, in Unix seconds; Infinity if only its sending ends it. `closes` is the
 * task's, or Infinity; `keep` is at most a week, and 0 keeps nothing; `scheduled` is the recall that has asked for the
 * frame, until it is sent.
 */
export function keptUntil(acknowledged, closes, keep, scheduled = null) {
  if (keep <= 0) return acknowledged;
  if (scheduled) return closes + SKEW + 2 * scheduled.spread;
  return Math.min(closes + SKEW, acknowledged + Math.min(keep, KEEP_SECONDS));
}
