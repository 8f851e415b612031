// A task from its published bytes, as strictly as the Python client; which round is open; which offer a device takes.
import { decodeText, parseJson } from "./json.js";
import { mechanismOf } from "./mechanisms.js";
import { compare, decimalFraction, decimalText, divide, fraction, need } from "./numbers.js";
import { sha256 } from "./sha256.js";

const LIMITS = { depth: 8, keys: 8192 };
const MOST_BYTES = 65536, MOST_LABELS = 1024, MOST_ROUNDS = 1000000, MOST_OFFERS = 8;
const LARGEST_COUNT = 2 ** 53 - 1, LAST_MOMENT = Date.parse("9999-12-31T23:59:59Z");
const SECONDS = { s: 1, m: 60, h: 3600, d: 86400, w: 604800 };
const LONGEST_POLICY = 3650 * 86400, LONGEST_INTERVAL = 999999999 * 86400;
const SMALLEST = fraction(1n, 1000000n), LARGEST = fraction(50n);
export const ID = /^[a-z0-9][a-z0-9-]{0,63}$/;

/** The fields of an object: each is taken once by its name, and `end` refuses the rest. */
class Fields {
  constructor(value, what) {
    need(value instanceof Map, "task", `${what} is not an object`);
    this.left = new Map(value);
    this.what = what;
  }
  take(name, isLegal, missing) {
    const value = this.left.get(name);
    this.left.delete(name);
    if (value === undefined && missing !== undefined) return missing;
    need(value !== undefined && isLegal(value), "task", `${name} of ${this.what} is missing, or not legal`);
    return value;
  }
  end() {
    for (const name of this.left.keys()) need(false, "task", `${this.what} has the unknown field ${name.slice(0, 80)}`);
  }
}

const isText = (value) => typeof value === "string";
const isLine = (most, least = 0) => (value) =>
  isText(value) && new RegExp(`^.{0,${most}}$`, "u").test(value) && (!least || /[^ ]/.test(value));
const isInteger = (least, most) => (value) => typeof value === "bigint" && value >= least && value <= most;
const isList = (value) => Array.isArray(value);
const isBound = (value) => ["bigint", "number"].includes(typeof value) && Number.isFinite(Number(value));
const seconds = (value) => (isText(value) && /^[1-9]\d{0,8}[smhdw]$/.test(value) ? parseInt(value, 10) * SECONDS[value.at(-1)] : 0);
const isInterval = (most) => (value) => seconds(value) > 0 && seconds(value) <= most;
const isMoment = (value) => isText(value) && /^(?!0000)\d{4}-.{14}Z$/.test(value) && // Date takes a 30th of February,
  JSON.stringify(new Date(value)) === `"${value.slice(0, 19)}.000Z"`; // but writes another day
const isDistinct = (texts) => new Set(texts).size === texts.length;

function epsilonOf(value) {
  const found = typeof value === "bigint" ? fraction(value) : isText(value) ? decimalFraction(value) : null;
  need(found && compare(found, SMALLEST) >= 0 && compare(found, LARGEST) <= 0, "epsilon",
    "an epsilon is not exact decimal text from 0.000001 to 50");
  return found;
}

function readNumber(fields) {
  const [lower, upper] = ["lower", "upper"].map((name) => Number(fields.take(name, isBound)));
  fields.take("outside", (value) => value === "clamp");
  need(lower < upper && upper - lower < Infinity, "task", "the bounds are not in order, or too far apart");
  return { lower, upper, unit: fields.take("unit", isLine(40), "") };
}

const DOMAINS = {
  number: readNumber,
  bit: () => ({}),
  category(fields) {
    const labels = fields.take("labels", isList);
    need(labels.length >= 2 && labels.length <= MOST_LABELS && labels.every(isLine(100, 1)) && isDistinct(labels),
      "task", `labels are not 2 to ${MOST_LABELS} different lines`);
    const other = fields.take("other", (value) => labels.includes(value), null);
    return { labels, other };
  },
  vector(fields) {
    const coordinates = fields.take("coordinates", isList).map((part) => {
      const one = new Fields(part, "a coordinate"), name = one.take("name", isLine(100, 1)), bounds = readNumber(one);
      one.end();
      return Object.freeze({ name, ...bounds });
    });
    need(coordinates.length >= 1 && coordinates.length <= MOST_LABELS && isDistinct(coordinates.map((it) => it.name)),
      "task", `coordinates are not 1 to ${MOST_LABELS} with different names`);
    return { coordinates };
  },
};

function readDomain(value) {
  const fields = new Fields(value, "domain"), kind = fields.take("kind", (name) => Object.hasOwn(DOMAINS, name));
  const domain = Object.freeze({ kind, ...DOMAINS[kind](fields) });
  fields.end();
  return domain;
}

/** The parameters of the mechanism: those that are not given are undefined. */
function readParameters(fields) {
  const integers = (name) => {
    const value = fields.take(name, (it) => typeof it === "bigint" || isList(it), []), list = isList(value) ? value : [value];
    need(list.every((it) => typeof it === "bigint"), "task", `${name} is not made of integers`);
    return list.length ? list : undefined;
  };
  const inner = (name, read) => {
    const value = fields.take(name, () => true, null);
    if (value === null) return undefined;
    const parts = new Fields(value, name), found = read(parts);
    parts.end();
    return found;
  };
  const whole = (value) => typeof value === "bigint";
  const isRow = (value) => isList(value) && value.every(whole);
  const probability = (parts, name) => {
    const text = parts.take(name, (it) => isText(it) && /^[01](\.\d{1,18})?$/.test(it));
    return decimalFraction(text);
  };
  return {
    levels: integers("levels"),
    size: integers("size"),
    sampled: fields.take("sampled", whole, null) ?? undefined,
    coins: inner("coins", (it) => ({ truth: probability(it, "truth"), yes: probability(it, "yes") })),
    table: inner("table", (it) => ({
      positions: it.take("positions", isRow),
      unit: it.take("unit", whole),
      weights: it.take("weights", (rows) => isList(rows) && rows.every(isRow)),
    })),
  };
}

function checkTimes({ opens, closes, rounds, roundEvery }) {
  need(!(closes <= opens), "task", "it closes before it opens");
  need(rounds === 1 || (roundEvery && opens !== undefined), "task", "rounds need opens and round_every");
  need(!roundEvery || opens === undefined || opens + (rounds - 1) * roundEvery * 1000 <= LAST_MOMENT, "task",
    "its last round is beyond the year 9999");
}

function checkOffers(offers, epsilon, rounds) {
  if (!offers.length) return;
  const ascend = offers.every((it, i) => !i || compare(offers[i - 1], it) < 0) && !compare(offers.at(-1), epsilon);
  need(offers.length >= 2 && offers.length <= MOST_OFFERS && ascend, "task", "offers do not ascend to epsilon");
  need(compare(divide(offers[0], rounds), SMALLEST) >= 0, "epsilon", "an offer is below 0.000001 in a round");
}

/**
 * Read a task from its bytes, exactly as they were published. Throws a HushError: "malformed", "task" or "epsilon".
 */
export function readTask(payload) {
  need(payload.length <= MOST_BYTES, "task", "it is too long");
  const fields = new Fields(parseJson(decodeText(payload), LIMITS), "the task");
  const moment = (name) => {
    const value = fields.take(name, isMoment, null);
    return value === null ? undefined : Date.parse(value);
  };
  const count = (name) => fields.take(name, isInteger(1, LARGEST_COUNT), null);
  const id = fields.take("id", (value) => isText(value) && ID.test(value));
  const [title, purpose] = ["title", "purpose"].map((name) => fields.take(name, isLine(500), ""));
  const mechanism = fields.take("mechanism", isText), domain = readDomain(fields.take("domain", () => true));
  const rounds = Number(fields.take("rounds", isInteger(1, MOST_ROUNDS)));
  const repeat = fields.take("repeat", (value) => ["fresh", "sticky"].includes(value), "fresh");
  const roundEvery = seconds(fields.take("round_every", isInterval(LONGEST_INTERVAL), "")) || undefined;
  const opens = moment("opens"), closes = moment("closes"), parameters = readParameters(fields);
  const given = fields.take("epsilon", () => true), offered = fields.take("offers", isList, []);
  ["enrolled", "release_from"].forEach(count);
  ["release_every", "retention"].forEach((name) => fields.take(name, isInterval(LONGEST_POLICY), ""));
  fields.end();
  checkTimes({ opens, closes, rounds, roundEvery });
  const epsilon = epsilonOf(given), offers = offered.map(epsilonOf), sticky = repeat === "sticky";
  checkOffers(offers, epsilon, fraction(BigInt(rounds)));
  const draws = sticky ? 1 + Number(parameters.levels?.[0] ?? 1) : rounds;
  need(!sticky || (!offers.length && rounds > draws), "task", "sticky answers need one epsilon, and more rounds than draws");
  const totals = offers.length ? offers : [epsilon], shares = totals.map((it) => divide(it, fraction(BigInt(draws))));
  need(compare(shares.at(-1), SMALLEST) >= 0, "epsilon", "it is below 0.000001 in a round");
  const randomizers = mechanismOf(mechanism, domain, shares, parameters, sticky), digest = sha256(payload);
  return Object.freeze({
    id, title, purpose, mechanism, domain, rounds, roundEvery, opens, closes, sticky, draws, digest,
    epsilon: decimalText(epsilon), offers: totals.map(decimalText), hasOffers: offers.length > 0, totals, randomizers,
  });
}

/** The round that is open at `now`, in Unix seconds; throws a HushError "not_open" or "closed". */
export function currentRound(task, now) {
  need(Number.isFinite(now), "argument", "now is not a number of seconds");
  const moment = Math.floor(now * 1000), { opens, closes, roundEvery, rounds } = task;
  need(!(moment < opens), "not_open", `it opens at ${opens && new Date(opens).toISOString()}`);
  need(!(moment >= closes), "closed", `it closed at ${closes && new Date(closes).toISOString()}`);
  if (opens === undefined || !roundEvery || rounds === 1) return 0;
  return Math.min(Math.floor((moment - opens) / (1000 * roundEvery)), rounds - 1);
}

const NOTHING = fraction(0n);

/**
 * Choose what an answer costs, without any value: the largest offer that the limits allow.
 *
 * `limits` has exact decimal texts: `maxEpsilon` for one task, `lifetime` for a purpose, `total` for all purposes (or
 * null). `spent` and `spentInAll` are fractions. A sticky task that is `charged` costs nothing more.
 * Throws a HushError "epsilon" or "spent".
 */
export function chooseOffer(task, limits, { spent = NOTHING, spentInAll = NOTHING, charged = false, asked = null } = {}) {
  const limit = (name) => {
    const found = limits[name] == null ? null : typeof limits[name] === "string" ? decimalFraction(limits[name]) : undefined;
    need(found !== undefined && (found || limits[name] == null), "argument",
      `${name} is not exact decimal text; write for example "4"`);
    return found;
  };
  const [maxEpsilon, lifetime, total] = ["maxEpsilon", "lifetime", "total"].map(limit);
  const place = asked === null ? -1 : task.offers.findIndex((it) => it === decimalText(decimalFraction(asked) ?? NOTHING));
  need(asked === null || place >= 0, "argument", `${task.id} offers ${task.offers.join(" or ")}`);
  const isAbove = (before, cost, most) => most && compare([before[0] * cost[1] + cost[0] * before[1], before[1] * cost[1]], most) > 0;
  let status = "epsilon";
  for (let offer = asked === null ? task.totals.length - 1 : place; offer >= (asked === null ? 0 : place); offer--) {
    const cost = costOf(task, offer, charged);
    if (maxEpsilon && compare(task.totals[offer], maxEpsilon) > 0) status = "epsilon";
    else if (isAbove(spent, cost, lifetime) || isAbove(spentInAll, cost, total)) status = "spent";
    else return { offer, cost };
  }
  need(false, status, status === "spent" ? "the budget of this device is spent" : "it costs more than this device allows");
}

/** What one answer under an offer is charged, as a fraction. */
export const costOf = (task, offer, charged) =>
  task.sticky ? (charged ? NOTHING : task.totals[0]) : divide(task.totals[offer], fraction(BigInt(task.rounds)));
