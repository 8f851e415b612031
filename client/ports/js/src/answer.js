// From a value to a report: index, draw, frame. A value decides nothing but the body of the report.
import { bodyOfMemory, complete, drawMemory, sizesOf, STEPS } from "./mechanisms.js";
import { bounded, divide, fraction, hex, need, systemRandom, unhex } from "./numbers.js";
import { ID } from "./task.js";

// ---- values

/** A finite binary64, exactly, in units of 2^-1074. */
function scaled(number) {
  const [bits] = new BigUint64Array(Float64Array.of(Math.abs(number)).buffer), exponent = bits >> 52n;
  return BigInt(Math.sign(number)) * (exponent ? ((bits % (1n << 52n)) + (1n << 52n)) << (exponent - 1n) : bits);
}

/** The nearest binary64 of decimal text; null if it is not a number. */
function numberOf(text) {
  const found = /^([+-]?)(?:(?:\d+(?:\.\d*)?|\.\d+)(?:e[+-]?\d+)?|(inf(?:inity)?))$/i.exec(text);
  return !found || text.length > 100 ? null : Number(found[2] ? `${found[1]}Infinity` : text);
}

/** The grid point next to a number, of two the even one, and whether it was moved into the bounds. */
function gridPoint({ lower, upper }, value) {
  const number = typeof value === "string" ? numberOf(value) : value;
  if (number === null || Number.isNaN(number)) return [null, false];
  const inside = Math.min(Math.max(number, lower), upper);
  const [low, high, at] = [lower, upper, inside].map(scaled), span = 2n * (high - low);
  const twice = 2n * (at - low) * STEPS + high - low, up = twice / span;
  return [up - (twice % span ? 0n : up % 2n), inside !== number];
}

const SPACE = /^[\t-\r\x1c-\x20\x85]+|[\t-\r\x1c-\x20\x85]+$/g;
const BITS = { no: 0n, false: 0n, 0: 0n, yes: 1n, true: 1n, 1: 1n };

const READERS = {
  number: (domain, value) => [gridPoint(domain, value)],
  bit: (_, value) => [[BITS[`${value}`.toLowerCase()] ?? null, false]],
  category({ labels, other }, value) {
    const place = value === null ? -1 : labels.indexOf(value), isMoved = place < 0 && value !== null && other !== null;
    return [[isMoved ? BigInt(labels.indexOf(other)) : place < 0 ? null : BigInt(place), isMoved]];
  },
  vector({ coordinates }, value) {
    const given = typeof value === "string" ? value.split(",").map((part) => part.replace(SPACE, "")) : value ?? [];
    const parts = Array.isArray(given) ? given : coordinates.map(({ name }) => given[name] ?? null);
    return coordinates.map((one, i) => (parts.length === coordinates.length ? gridPoint(one, parts[i] ?? null) : [null, false]));
  },
};
const isNumber = (value) => value == null || ["string", "number"].includes(typeof value);
const TYPES = {
  number: ["a number, text or null", isNumber],
  bit: ["a boolean, text or null", (value) => value == null || ["string", "boolean"].includes(typeof value)],
  category: ["text or null", (value) => value == null || typeof value === "string"],
  vector: ["a list of numbers, text or null", (value) =>
    value == null || typeof value === "string" || (typeof value === "object" && Object.values(value).every(isNumber))],
};

/** Throw a TypeError for a value of a type that the task never takes: a mistake of the program, not of the data. */
export function checkType(task, value) {
  const [words, isRight] = TYPES[task.domain.kind];
  if (!isRight(value)) throw new TypeError(`a value of this task is ${words}`);
}

/** The index of each number that is asked for, null where nothing usable was given; and what became of the value. */
export function indicesOf(task, value) {
  const found = READERS[task.domain.kind](task.domain, value ?? null), parts = found.map(([part]) => part);
  return { parts, value: parts.includes(null) ? "replaced" : found.some(([, moved]) => moved) ? "moved" : "used" };
}

// ---- the draw

/**
 * Draw one report: ONE CHARGE of the task's epsilon. The device part (device.js) stores charge and report first.
 *
 * Whether, when and under which `offer` must not depend on the value, which is text, a number (of a bit a boolean, of a
 * vector a list or an object by names), or null. `memory` is that of a sticky task which was answered before.
 */
export function draw(task, value, { round, offer = 0, memory = null, random = systemRandom }) {
  checkType(task, value);
  const source = bounded(random), { parts, value: became } = indicesOf(task, value), randomizer = task.randomizers[offer];
  let body, kept = memory;
  if (task.sticky) {
    kept ??= drawMemory(randomizer, divide(task.totals[0], fraction(BigInt(task.draws))), source);
    body = bodyOfMemory(randomizer, kept, parts[0]);
  } else {
    const index = complete(parts, sizesOf(task.domain), source);
    body = randomizer.perturb(task.domain.kind === "vector" ? index : index[0], source);
  }
  if (task.hasOffers) body = [BigInt(offer), ...body];
  return { task: task.id, digest: task.digest.slice(0, 16), round, id: source(16), body, value: became, memory: kept };
}

// ---- the wire

const wide = (integer, digits) => BigInt.asUintN(4 * digits, BigInt(integer)).toString(16).padStart(digits, "0");

/** One frame of 1 to 4096 reports of one task and round, with 1 to 1024 integers each. */
export function encodeFrame(reports) {
  const [{ digest, round, body } = { digest: [], body: [] }] = reports, size = body.length, text = hex(digest);
  const isAlike = reports.every((it) => hex(it.digest) === text && it.round === round && it.body.length === size);
  need(isAlike && digest.length === 16 && reports.length <= 4096 && size >= 1 && size <= 1024, "argument",
    "one frame cannot hold these reports");
  const entries = reports.map((it) => hex(it.id) + it.body.map((integer) => wide(integer, 16)).join(""));
  return unhex(`0200${wide(8 * size, 4)}${text}${wide(round, 8)}${entries.join("")}`);
}

/** The JSON form of one report, as text. */
export const encodeJson = ({ task, digest, round, id, body }) =>
  `{"v":2,"task":"${task}","digest":"${hex(digest.slice(0, 16))}","round":${round},"id":"${hex(id)}","body":[${body}]}`;

/** The topic of the reports of a sender. */
export function reportTopic(task, sender) {
  need(ID.test(task) && /^[A-Za-z0-9][\w.@:-]{0,127}$/.test(sender), "argument", "the task or the sender is not a valid name");
  return `hush/v1/reports/${task}/${sender}`;
}

// ---- a report for people

/**
 * What a report says, in the words and the unit of its task: { number, unit }, { bit }, { labels } or { coordinates }.
 * It is the noisy answer, as the aggregator decodes it at best; a number may be far outside the bounds.
 */
export function reported(task, body) {
  const rest = task.hasOffers ? body.slice(1) : body, { kind, lower, upper, unit } = task.domain;
  const randomizer = task.randomizers[task.hasOffers ? Number(body[0]) : 0];
  const at = (share, from, to) => from + share * (to - from);
  const level = (z) => Number(z) / Number(randomizer.levels);
  if (kind === "bit") return { bit: rest[0] === 1n };
  if (kind === "category") return { labels: task.domain.labels.filter((_, c) => (rest[c >> 5] >> BigInt(c & 31)) & 1n) };
  if (kind === "number") {
    const share = task.mechanism === "laplace" ? Number(rest[0]) / Number(STEPS)
      : task.mechanism === "table" ? Number(randomizer.positions[Number(rest[0])]) / Number(randomizer.unit) : level(rest[0]);
    return { number: at(share, lower, upper), unit };
  }
  const pairs = Array.from({ length: rest.length / 2 }, (_, i) => [task.domain.coordinates[Number(rest[2 * i])], rest[2 * i + 1]]);
  return { coordinates: pairs.map(([one, z]) => ({ name: one.name, number: at(level(z), one.lower, one.upper), unit: one.unit })) };
}

const rounded = (number) => Number(number.toPrecision(6)).toLocaleString("en", { maximumFractionDigits: 6, useGrouping: false });
const quantity = ({ number, unit }) => `${rounded(number)}${unit && ` ${unit}`}`;

/** What left the device, as the end of a sentence: "571231 cm", "yes", "walk or bus", "noise at home: 41 dB". */
export function reportedText(task, body) {
  const { bit, labels, coordinates, ...number } = reported(task, body);
  if (labels) return labels.join(" or ");
  if (coordinates) return coordinates.map((it) => `${it.name}: ${quantity(it)}`).join(", ");
  return bit === undefined ? quantity(number) : bit ? "yes" : "no";
}
