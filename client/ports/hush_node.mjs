// hush for Node.js 18 or later: from a published task and a private value to the payload of one report. One file, no
// dependency, every draw made of BigInts and crypto.randomBytes. docs/wire.md has the laws, and how to use this.
// IT KEEPS NO LEDGER AND NO OUTBOX. Each call of `answer` is a new draw and spends epsilon again: the caller must store
// the payload AND the charge durably before the first network byte, must send those same bytes until the broker
// acknowledges, and must never answer a task twice.
import { isUtf8 } from "node:buffer";
import { createHash, randomBytes } from "node:crypto";

export class HushError extends Error { // `status`: argument, random, malformed, task, epsilon, not_open or closed
  constructor(status, message) { super(`${status}: ${message}`); this.status = status; }
}
const need = (condition, status, message) => { if (!condition) throw new HushError(status, message); return true; };

// ---- numbers: an epsilon as [numerator, denominator], a bound or a value as the nearest binary64; null if it is none
function fraction(text) {
  const [, whole, part = "", down, power = "0"] = /^(\d{1,3})(?:\.(\d{1,18}))?(?:[eE](-?)(\d))?$/.exec(text) || [];
  const shift = 10n ** BigInt(power), unit = 10n ** BigInt(part.length);
  return whole ? [BigInt(whole + part) * (down ? 1n : shift), unit * (down ? shift : 1n)] : null;
}
function decimal(text) {
  const found = /^([+-]?)(?:(?:\d+(?:\.\d*)?|\.\d+)(?:e[+-]?\d+)?|(inf(?:inity)?))$/i.exec(text);
  return !found || text.length > 100 ? null : Number(found[2] ? `${found[1]}Infinity` : text);
}
function scaled(number) { // a finite binary64, exactly, in units of 2^-1074
  const [bits] = new BigUint64Array(Float64Array.of(Math.abs(number)).buffer), exponent = bits >> 52n;
  return BigInt(Math.sign(number)) * (exponent ? (bits % (1n << 52n) + (1n << 52n)) << (exponent - 1n) : bits);
}

// ---- a task: what each field may be, and no field else
const text = (pattern) => (value) => typeof value === "string" && pattern.test(value);
const count = (most) => (value) => Number.isInteger(value) && value >= 1 && value <= most;
const moment = (value) => text(/^(?!0000)\d{4}-.{14}Z$/)(value) && // Date takes a 30th of February, but writes another
  JSON.stringify(new Date(value)) === `"${value.slice(0, 19)}.000Z"`;
const SECONDS = { s: 1, m: 60, h: 3600, d: 86400, w: 604800 }; // a length of time is at most 3650 days
const length = (value) => text(/^[1-9]\d{0,8}[smhdw]$/)(value) && parseInt(value, 10) * SECONDS[value.at(-1)] <= 315360000;
const maybe = (check) => (value) => value === undefined || check(value);
const known = (fields, legal) => fields instanceof Object && Object.keys({ ...legal, ...fields }).every((name) =>
  need(Object.hasOwn(legal, name), "task", "unknown field") && need(legal[name](fields[name]), "task", `bad ${name}`));
const line = (most) => maybe(text(new RegExp(`^.{0,${most}}$`, "u")));
const ID = /^[a-z0-9][a-z0-9-]{0,63}$/, BIT = { kind: text(/^bit$/) }, NUMBER = {
  kind: text(/^number$/), lower: Number.isFinite, upper: Number.isFinite, outside: text(/^clamp$/), unit: line(40) };
const TASK = {
  id: text(ID), title: line(500), purpose: line(500), rounds: count(1),
  epsilon: (it) => ["string", "number"].includes(typeof it),
  domain: (it) => known(it, it?.kind === "bit" ? BIT : NUMBER), enrolled: maybe(count(2 ** 53 - 1)),
  mechanism: text(/^(laplace|multilevel|randomized_response)$/), levels: maybe(count(1024)),
  opens: maybe(moment), closes: maybe(moment),
  release_from: maybe(count(2 ** 53 - 1)), release_every: maybe(length), retention: maybe(length) };
// Characters that no text has: controls, formats, white space but the space, private use; docs/wire.md has the list.
const UNPRINTABLE = new RegExp("(?![\\t\\n\\r])[\\0-\\x1f\\x7f-\\xa0\\xad\\u0600-\\u0605\\u061c\\u06dd\\u070f" +
  "\\u0890\\u0891\\u08e2\\u1680\\u180e\\u2000-\\u200f\\u2028-\\u202f\\u205f-\\u206f\\u3000\\ud800-\\uf8ff" +
  "\\ufdd0-\\ufdef\\ufeff\\ufff0-\\ufffb\\u{110bd}\\u{110cd}\\u{13430}-\\u{1343f}\\u{1bca0}-\\u{1bca3}" +
  "\\u{1d173}-\\u{1d17a}\\u{e0000}-\\u{e00ff}\\u{e01f0}-\\u{e0fff}\\u{f0000}-\\u{10ffff}]|\\p{Noncharacter_Code_Point}", "u");
const TOKEN = /"((?:[^"\\]|\\.)*)(?:"(\s*:)?|\\?$)|[{}[\]]|[^\s{}[\],:"]+/gs; // a text or a key, a bracket, a word
/** Looks for what JSON.parse hides, before it runs; returns the words (numbers, true, null) by their keys. */
export function scan(json) {
  const open = [], words = new Map();
  let key = "", keys = 0;
  need(!UNPRINTABLE.test(json), "malformed", "a character that is not printable");
  for (const [token, inner, colon] of json.matchAll(TOKEN)) {
    if ("{[".includes(token)) need(open.push(new Set()) <= 8, "task", "more than 8 brackets are open");
    else if ("}]".includes(token)) open.pop();
    else if (token[0] !== '"') need(words.set(key, token) && token.length <= 100, "task", "a number is too long");
    else need(!inner.replace(/\\["\\]/g, "").includes("\\"), "task", "an escape that hush does not publish");
    if (colon) {
      key = inner;
      need(++keys <= 8192 && !open.at(-1)?.has(key), "task", "a key twice in one object, or too many keys");
      open.at(-1)?.add(key);
    }
  }
  return words;
}
/** Reads a task from its bytes as they were published. `most` is the device's own limit, exact decimal text. */
export function readTask(payload, most) {
  const limit = fraction(most), json = isUtf8(payload) ? Buffer.from(payload).toString() : "";
  need(limit, "argument", "the limit of the device is not exact decimal text");
  need(payload.length <= 65536, "task", "it is too long");
  const words = scan(json), whole = (name) => /^\d+$/.test(words.get(name) ?? "1");
  let task;
  try { task = JSON.parse(json); } catch { need(false, "malformed", "it is not JSON"); }
  need(known(task, TASK), "task", "it is not a JSON object");
  const { mechanism, domain: { kind, lower, upper } } = task, bit = kind === "bit";
  const fits = "levels" in task === (mechanism === "multilevel") && bit === (mechanism === "randomized_response");
  need(fits && (bit || (lower < upper && upper - lower < Infinity)), "task", "a field does not fit the others");
  need(!(Date.parse(task.closes) <= Date.parse(task.opens)), "task", "it closes before it opens");
  need(["rounds", "levels", "enrolled", "release_from"].every(whole), "task", "an integer is written as a float");
  const [a, c] = whole("epsilon") && fraction(`${task.epsilon}`) || [0n, 1n]; // of which the latter is refused
  need(a * 10n ** 6n >= c && a <= 50n * c && a * limit[1] <= limit[0] * c, "epsilon",
    "it is not exact, outside 0.000001 to 50, or above the limit of this device");
  const digest = createHash("sha256").update(payload).digest();
  return Object.freeze({ purpose: "", ...task, bit, lower, upper, epsilon: `${task.epsilon}`, digest });
}

// ---- draws, in the order of docs/wire.md; `random(size)` gives so many bytes, and is crypto's but in tests
const STEPS = 1n << 20n, TRUTH = 1n << 128n, ONE = 1n << 512n;
const bounded = (random, left = 1000) => (size) => ( // no answer takes so many draws, but from a source that is stuck
  need(left-- > 0, "random", "the source of randomness is not random; nothing was answered"), random(size));
export function below(n, random) { // a uniform integer in [0, n), by rejection
  const size = (n.toString(2).length + 15) >> 3, span = 1n << BigInt(8 * size);
  const draw = BigInt(`0x${random(size).toString("hex")}`);
  return draw < span - span % n ? draw % n : below(n, random);
}
function weightOfLie(a, c) { // floor(2^128 e^-(a/c)) + 1, certified: e^(a/c) is enclosed, and both ends give this
  let [low, high, lowTerm, highTerm] = [ONE, ONE, ONE, ONE];
  for (let j = 1n; highTerm > 1n || (j - 1n) * c <= 2n * a; j++) {
    [lowTerm, highTerm] = [lowTerm * a / (c * j), (highTerm * a + c * j - 1n) / (c * j)];
    [low, high] = [low + lowTerm, high + highTerm];
  }
  need(TRUTH * ONE / low === TRUTH * ONE / (high + highTerm), "epsilon", "too little precision for this epsilon");
  return TRUTH * ONE / low + 1n;
}
function coin(p, q, random, k = p === q ? 2n : 1n) { // true with probability e^(-p/q), exactly
  return below(q * k, random) < p ? coin(p, q, random, k + 1n) : k % 2n === 1n;
}
function noise(s, t, random) { // discrete Laplace, of scale t/s
  const draw = below(2n * t, random), residue = draw / 2n, sign = draw % 2n ? -1n : 1n;
  if (!coin(residue, t, random)) return noise(s, t, random);
  let quotient = 0n;
  while (coin(1n, 1n, random)) quotient++;
  const magnitude = (residue + t * quotient) / s;
  return sign < 0n && magnitude === 0n ? noise(s, t, random) : sign * magnitude; // zero has one sign
}
const divisor = (a, b) => (b ? divisor(b, a % b) : a);
export function perturb(task, index, random) { // the only place where a value, as an index, meets randomness
  const [a, c] = fraction(task.epsilon), common = divisor(STEPS * c, a), window = (40n * STEPS * c + a - 1n) / a;
  need(index >= 0n && index <= (task.bit ? 1n : STEPS), "argument", "the index is outside the domain");
  if (task.mechanism === "laplace") {
    const report = index + noise(a / common, STEPS * c / common, random);
    return report < -window ? -window : report > STEPS + window ? STEPS + window : report;
  }
  const lie = weightOfLie(a, c);
  if (task.bit) return below(TRUTH + lie, random) < (index ? TRUTH : lie) ? 1n : 0n;
  const levels = BigInt(task.levels), total = TRUTH + levels * lie, draw = below(STEPS * total, random);
  const level = index * levels / STEPS + (draw / total < index * levels % STEPS ? 1n : 0n);
  const other = (draw % total - TRUTH) / lie;
  return draw % total < TRUTH ? level : other + (other >= level ? 1n : 0n);
}
function indexOf(task, value) { // what the mechanism sees, null where there is no value; and what became of the value
  const place = ["no", "false", "0", "yes", "true", "1"].indexOf(value), number = decimal(value);
  if (task.bit ? place < 0 : number === null) return [null, "replaced"];
  if (task.bit) return [place < 3 ? 0n : 1n, "used"];
  const inside = Math.min(Math.max(number, task.lower), task.upper);
  const [low, high, at] = [task.lower, task.upper, inside].map(scaled), span = 2n * (high - low);
  const twice = 2n * (at - low) * STEPS + high - low, up = twice / span; // the nearest, of two the upper one
  return [up - (twice % span ? 0n : up % 2n), inside === number ? "used" : "moved"]; // of two the even one
}
/** One perturbed answer with a fresh id: ONE CHARGE of `task.epsilon`. Whether and when must not depend on the value,
 * which is text, a number (of a bit: a boolean), or null where there is none. `now` is in Unix seconds. */
export function answer(task, value, now, random = randomBytes) {
  const given = value ?? "", other = task.bit ? "boolean" : "number", source = bounded(random);
  if (!["string", other].includes(typeof given)) throw new TypeError(`a value is text, a ${other}, or null`);
  need(Number.isFinite(now), "argument", "now is not a number of seconds");
  need(!(now * 1000 < Date.parse(task.opens)), "not_open", `it opens at ${task.opens}`);
  need(!(now * 1000 >= Date.parse(task.closes)), "closed", `it closed at ${task.closes}`);
  const [index, became] = indexOf(task, `${given}`), size = task.bit ? 2n : STEPS + 1n;
  const body = [perturb(task, index === null ? below(size, source) : index, source)];
  return { task: task.id, digest: task.digest.subarray(0, 16), round: 0, id: random(16), body, value: became };
}

// ---- the wire: reports as `answer` makes them
const hex = (integer, digits) => BigInt.asUintN(4 * digits, BigInt(integer)).toString(16).padStart(digits, "0");
export function encodeFrame(reports) { // 1 to 4096, of one task and round, and each of so many integers, 1 to 1024
  const [{ digest, round, body } = { digest: "", body: [] }] = reports, size = body.length;
  const alike = reports.every((it) => it.digest.equals(digest) && it.round === round && it.body.length === size);
  need(alike && digest.length === 16 && reports.length <= 4096 && size >= 1 && size <= 1024, "argument", "one frame cannot hold these reports");
  const entries = reports.map((it) => it.id.toString("hex") + it.body.map((integer) => hex(integer, 16)).join(""));
  return Buffer.from(`0200${hex(8 * size, 4)}${digest.toString("hex")}${hex(round, 8)}${entries.join("")}`, "hex");
}
export const encodeJson = ({ task, digest, round, id, body }) => Buffer.from(
  `{"v":2,"task":"${task}","digest":"${digest.toString("hex", 0, 16)}",` +
  `"round":${round},"id":"${id.toString("hex")}","body":[${body}]}`);
export function reportTopic(task, sender) {
  need(ID.test(task) && /^[A-Za-z0-9][\w.@:-]{0,127}$/.test(sender), "argument", "the task or the sender is not a valid name");
  return `hush/v1/reports/${task}/${sender}`;
}
