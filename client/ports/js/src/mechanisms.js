// The mechanisms: what of a task each needs, and how it draws a report. docs/wire.md has the laws and the order of draws;
// the proofs are in hush_common/mechanisms.
import {
  TRUTH, add, below, bigOf, certifiedExp, compare, divide, fraction, isRatioWithin, leastCommonMultiple, logCeiling,
  multiply, need, subtract, systemRandom, weightOfLie,
} from "./numbers.js";

export const STEPS = 1n << 20n; // of the grid of a number
const MOST_LEVELS = 1024n, MOST_SAMPLED = 511n, MOST_CELLS = 16384, MOST_WEIGHT = 1n << 128n;
const ONE = fraction(1n);

const within = (name, value, most) => {
  need(value >= 1n && value <= most, "task", `${name} is outside 1 to ${most}`);
  return value;
};
const sum = (numbers) => numbers.reduce((total, number) => total + number, 0n);

// ---- laplace

function coin(p, q, random) { // true with probability e^(-p/q), exactly
  let k = p === q ? 2n : 1n;
  while (below(q * k, random) < p) k++;
  return k % 2n === 1n;
}

function discreteLaplace(s, t, random) { // of scale t/s
  for (;;) {
    const draw = below(2n * t, random), residue = draw / 2n, isNegative = draw % 2n === 1n;
    if (!coin(residue, t, random)) continue;
    let quotient = 0n;
    while (coin(1n, 1n, random)) quotient++;
    const magnitude = (residue + t * quotient) / s;
    if (!(isNegative && magnitude === 0n)) return isNegative ? -magnitude : magnitude; // zero has one sign
  }
}

const clamp = (value, low, high) => (value < low ? low : value > high ? high : value);

function laplace(epsilon) {
  const [t, s] = divide([STEPS, 1n], epsilon), window = (40n * t + s - 1n) / s;
  return { perturb: (index, random) => [clamp(index + discreteLaplace(s, t, random), -window, STEPS + window)] };
}

// ---- levels

const levelOf = (index, levels, steps, rounding) => (index * levels) / steps + (rounding < (index * levels) % steps ? 1n : 0n);

function multilevel(epsilon, levels, steps = STEPS) {
  const lie = weightOfLie(epsilon), total = TRUTH + levels * lie, draws = steps * total;
  const reported = (index, draw) => {
    const level = levelOf(index, levels, steps, draw / total), other = ((draw % total) - TRUTH) / lie;
    return draw % total < TRUTH ? level : other + (other >= level ? 1n : 0n);
  };
  return { levels, steps, draws, reported, perturb: (index, random) => [reported(index, below(draws, random))] };
}

function randomizedResponse([lie, truth], total) {
  return { levels: 1n, steps: 1n, perturb: (index, random) => [below(total, random) < (index ? truth : lie) ? 1n : 0n] };
}

function coins({ truth, yes }, epsilon) {
  need(truth[0] > 0n && compare(truth, ONE) <= 0 && compare(yes, ONE) <= 0, "task", "coins are not probabilities");
  const low = multiply(subtract(ONE, truth), yes), high = add(low, truth);
  const [zeroLow, zeroHigh] = [subtract(ONE, low), subtract(ONE, high)];
  need(low[0] && zeroHigh[0], "task", "an answer of these coins reveals the bit");
  const one = divide(high, low), zero = divide(zeroLow, zeroHigh); // the larger ratios: truth is above 0
  const cost = logCeiling(compare(one, zero) > 0 ? one : zero);
  need(cost && compare(cost, epsilon) === 0, "task", "epsilon is not what these coins cost");
  const total = leastCommonMultiple(low[1], truth[1]);
  return randomizedResponse([low, high].map(([a, c]) => (a * total) / c), total);
}

// ---- table

function checkTable({ positions, unit, weights }, epsilon) {
  const refuse = (condition, why) => need(condition, "task", `the table ${why}`);
  const bounds = (numbers, least) => numbers.every((it) => it >= least && it <= MOST_WEIGHT);
  refuse(weights.length >= 2 && positions.length >= 2 && weights.length * positions.length <= MOST_CELLS, "has too few or too many cells");
  refuse(bounds([unit], 1n) && bounds(positions, -MOST_WEIGHT), "has a position or a unit out of range");
  refuse(weights.every((row) => row.length === positions.length && bounds(row, 0n)), "has a weight out of range, or rows that differ");
  const total = sum(weights[0]), levels = BigInt(weights.length - 1), [low] = certifiedExp(epsilon);
  refuse(total > 0n && weights.every((row) => sum(row) === total), "has rows with different sums");
  const moment = (row) => sum(row.map((weight, y) => weight * positions[y]));
  refuse(weights.every((row, j) => moment(row) * levels === total * unit * BigInt(j)), "has a biased row");
  positions.forEach((_, y) => {
    const column = weights.map((row) => row[y]), [least, most] = [column.reduce((a, b) => (a < b ? a : b)), column.reduce((a, b) => (a > b ? a : b))];
    refuse(isRatioWithin(most, least, low), "has a ratio above e^epsilon");
  });
  return { total, levels };
}

function table(epsilon, given) {
  const { total, levels } = checkTable(given, epsilon), { weights, positions, unit } = given;
  const perturb = (index, random) => {
    const draw = below(STEPS * total, random), row = weights[Number(levelOf(index, levels, STEPS, draw / total))];
    let left = draw % total, output = 0;
    while (left >= row[output]) left -= row[output++];
    return [BigInt(output)];
  };
  return { perturb, positions, unit };
}

// ---- subsets: the same draws as the Python client, which makes large ones of coins

const FEW = 8, MOST_PLACES = 6;
const bit = (place) => 1n << BigInt(place);
const places = (bits, n) => Array.from({ length: n }, (_, place) => place).filter((place) => bits & bit(place));
const countBits = (bits) => bits.toString(2).replaceAll("0", "").length;

/** How many sequences of `size` different elements of n there are. */
const sequences = (n, size) => Array.from({ length: size }, (_, i) => BigInt(n - i)).reduce((a, b) => a * b, 1n);

/** A uniform subset of `size` of {0, …, n - 1}, from one uniform integer below `sequences(n, size)` (Floyd). */
function floyd(draw, n, size) {
  const chosen = [];
  for (let last = n - size; last < n; last++) {
    const digit = Number(draw % BigInt(last + 1));
    draw /= BigInt(last + 1);
    chosen.push(chosen.includes(digit) ? last : digit);
  }
  return chosen;
}

function bestPlan(n, size) {
  let best = null, least = Infinity;
  for (let many = 0; many <= MOST_PLACES; many++) {
    const unit = 1 << many;
    for (let share = many ? 1 : 0; share < unit; share += 2) {
      const lack = Math.floor((size * unit - n * share) / unit);
      const root = Math.floor(Math.sqrt(lack ** 2 + Math.floor((n * share * (unit - share) * 16) / (25 * unit ** 2))));
      const tried = Math.floor(((root + lack) * n) / (2 * (n - size))) + Math.floor(((root - lack) * n) / (2 * size)) + 1;
      const words = Math.floor((3 * tried) / 2) + 2, cost = tried * 220 + words * 40 + many * (n + 180);
      if (cost < least) [best, least] = [{ many, share, words }, cost];
    }
  }
  return best;
}

function byCoins(n, size, random) {
  const { many, share, words } = bestPlan(n, size), bytes = (n * many + 7) >> 3, limit = 65536 - (65536 % n);
  const drawn = () => {
    const all = random(bytes + 2 * words), word = (i) => all[bytes + 2 * i] | (all[bytes + 2 * i + 1] << 8);
    return [bigOf(all.slice(0, bytes).reverse()), Array.from({ length: words }, (_, i) => word(i))];
  };
  let [flips, singles] = drawn(), chosen = 0n;
  for (let place = 0; place < many; place++) {
    chosen = (share >> place) & 1 ? chosen | (flips & (bit(n) - 1n)) : chosen & flips;
    flips >>= BigInt(n);
  }
  for (let lack = size - countBits(chosen); lack; [, singles] = drawn()) {
    for (const word of singles) {
      if (word >= limit) continue; // with the last few, remainders would not be uniform
      const one = bit(word % n), isThere = (chosen & one) !== 0n;
      if (isThere !== lack < 0) continue;
      chosen ^= one;
      lack += lack > 0 ? -1 : 1;
      if (!lack) return chosen;
    }
  }
  return chosen;
}

/** A uniform subset of `size` of {0, …, n - 1}, as bits. */
function drawSubset(n, size, random) {
  if (size === 1) return bit(below(BigInt(n), random));
  if (2 * size > n) return (bit(n) - 1n) ^ drawSubset(n, n - size, random);
  if (size > FEW) return byCoins(n, size, random);
  return sum(floyd(below(sequences(n, size), random), n, size).map(bit));
}

function subsetSelection(epsilon, { labels: { length: k } }, size) {
  const lie = weightOfLie(epsilon), w = Number(size), width = (k + 31) >> 5;
  const withTruth = TRUTH * size, total = withTruth + lie * (BigInt(k) - size);
  const inserted = (bits, place, truth) => {
    const above = bits >> place;
    return bits ^ (above << place) ^ (((above << 1n) | truth) << place);
  };
  const words = (bits) => Array.from({ length: width }, (_, i) => (bits >> BigInt(32 * i)) & 0xffffffffn);
  const perturb = (index, random) => {
    const draw = below(total, random);
    if (draw < withTruth) return words(inserted(drawSubset(k - 1, w - 1, random), index, 1n));
    const others = w === 1 ? bit((draw - withTruth) / lie) : drawSubset(k - 1, w, random);
    return words(inserted(others, index, 0n));
  };
  return { perturb };
}

// ---- vectors

function vector(epsilon, { coordinates: { length: d } }, sampled, levels) {
  const s = Number(sampled), part = multilevel(divide(epsilon, [sampled, 1n]), levels);
  const perturb = (index, random) => {
    if (s > FEW) {
      const drawn = places(drawSubset(d, s, random), d);
      return drawn.flatMap((c) => [BigInt(c), ...part.perturb(index[c], random)]);
    }
    const subsets = sequences(d, s), every = below(subsets * part.draws ** sampled, random);
    let rest = every / subsets;
    return floyd(every % subsets, d, s).sort((a, b) => a - b).flatMap((c) => {
      const one = rest % part.draws;
      rest /= part.draws;
      return [BigInt(c), part.reported(index[c], one)];
    });
  };
  return { perturb, levels };
}

// ---- what a task may have

const KINDS = {
  laplace: { kind: "number", takes: [], build: laplace },
  multilevel: { kind: "number", takes: ["levels"], isOfLevels: true,
    build: (epsilon, _, { levels }, i) => multilevel(epsilon, within("levels", levels[i], MOST_LEVELS)) },
  table: { kind: "number", takes: ["table"], build: (epsilon, _, given) => table(epsilon, given.table) },
  randomized_response: { kind: "bit", takes: ["coins"], isOptional: true, isOfLevels: true,
    build(epsilon, _, given) {
      if (given.coins) return coins(given.coins, epsilon);
      const lie = weightOfLie(epsilon);
      return randomizedResponse([lie, TRUTH], TRUTH + lie);
    } },
  subset_selection: { kind: "category", takes: ["size"],
    build: (epsilon, domain, { size }, i) => subsetSelection(epsilon, domain, within("size", size[i], BigInt(domain.labels.length - 1))) },
  vector: { kind: "vector", takes: ["levels", "sampled"],
    build(epsilon, domain, { sampled, levels }, i) {
      const most = clamp(BigInt(domain.coordinates.length), 1n, MOST_SAMPLED);
      return vector(epsilon, domain, within("sampled", sampled, most), within("levels", levels[i], MOST_LEVELS));
    } },
};

/** The mechanism of one report, for each epsilon that a task offers. */
export function mechanismOf(name, domain, epsilons, parameters, sticky) {
  need(Object.hasOwn(KINDS, name), "mechanism", `hush has no mechanism ${name.slice(0, 40)}`);
  const { kind, takes, isOptional, isOfLevels, build } = KINDS[name];
  need(domain.kind === kind && (!sticky || isOfLevels), "task", "the mechanism does not fit the other fields");
  for (const [field, value] of Object.entries(parameters)) {
    need(takes.includes(field) ? isOptional || value !== undefined : value === undefined, "task", `${field} is missing, or of another mechanism`);
    need(!isOneForEach(field) || !value || value.length === epsilons.length, "task", `${field} has not one number for each epsilon`);
    need(epsilons.length === 1 || isOneForEach(field) || field === "sampled" || !value, "task", `${field} has one epsilon`);
  }
  return epsilons.map((epsilon, i) => Object.freeze(build(epsilon, domain, parameters, i)));
}
const isOneForEach = (field) => field === "levels" || field === "size";

/** How many indices each number that is asked for can have. */
export const sizesOf = ({ kind, labels, coordinates }) =>
  kind === "number" ? [STEPS + 1n] : kind === "bit" ? [2n] : kind === "category" ? [BigInt(labels.length)] : coordinates.map(() => STEPS + 1n);

/** Fill each missing index (null) with a uniform one; a present one takes as long, from separate randomness. */
export const complete = (parts, sizes, random) => parts.map((part, i) => {
  const drawn = below(sizes[i], part === null ? random : systemRandom);
  return part === null ? drawn : part;
});

/**
 * Draw what a sticky task is answered with in all its rounds: a report for each level, a threshold, and the index that
 * replaces a missing value. SECRET: it reveals the values from the reports.
 */
export function drawMemory({ levels, steps, perturb }, epsilon, random) {
  const one = steps === 1n ? perturb : multilevel(epsilon, levels, levels).perturb, reports = [];
  for (let level = 0n; level <= levels; level++) reports.push(one(level, random)[0]);
  return { reports, threshold: below(steps, random), substitute: below(steps + 1n, random) };
}

/** The body that a memory gives for an index, or for a missing value (null). */
export function bodyOfMemory({ levels, steps }, { reports, threshold, substitute }, index) {
  return [reports[Number(levelOf(index ?? substitute, levels, steps, threshold))]];
}
