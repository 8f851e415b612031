// Exact numbers: fractions of BigInts, certified bounds of e^x, and uniform integers from the system's randomness.

/** An error with a `status`: one word for programs. The message has the remedy, and never a private value. */
export class HushError extends Error {
  constructor(status, message) {
    super(`${status}: ${message}`);
    this.name = "HushError";
    this.status = status;
  }
}

/** Throw a HushError unless the condition holds. */
export function need(condition, status, message) {
  if (!condition) throw new HushError(status, message);
}

const divisor = (a, b) => {
  while (b) [a, b] = [b, a % b];
  return a < 0n ? -a : a;
};

/** A fraction in lowest terms, as [numerator, denominator]; the denominator is positive. */
export function fraction(numerator, denominator = 1n) {
  const common = divisor(numerator, denominator) || 1n;
  return [numerator / common, denominator / common];
}
export const add = ([a, c], [b, d]) => fraction(a * d + b * c, c * d);
export const subtract = ([a, c], [b, d]) => fraction(a * d - b * c, c * d);
export const multiply = ([a, c], [b, d]) => fraction(a * b, c * d);
export const divide = ([a, c], [b, d]) => fraction(a * d, c * b);
/** Negative, zero or positive, as the first is below, equal to or above the second. */
export function compare([a, c], [b, d]) {
  const difference = a * d - b * c;
  return difference < 0n ? -1 : difference > 0n ? 1 : 0;
}
export const leastCommonMultiple = (a, b) => (a / divisor(a, b)) * b;

/** The number that text such as "0.5" or "1e-3" states, exactly; null if it has another form. */
export function decimalFraction(text) {
  const found = /^(\d{1,3})(?:\.(\d{1,18}))?(?:[eE](-?)(\d))?$/.exec(text);
  if (!found) return null;
  const [, whole, part = "", down, power = "0"] = found;
  const shift = 10n ** BigInt(power), unit = 10n ** BigInt(part.length);
  return fraction(BigInt(whole + part) * (down ? 1n : shift), unit * (down ? shift : 1n));
}

/** The shortest exact decimal text of a fraction, or "1/3" where there is none. */
export function decimalText([numerator, denominator]) {
  for (let places = 0, unit = 1n; places < 40; places++, unit *= 10n) {
    if ((numerator * unit) % denominator) continue;
    const digits = `${(numerator * unit) / denominator}`.padStart(places + 1, "0");
    return places ? `${digits.slice(0, -places)}.${digits.slice(-places)}` : digits;
  }
  return `${numerator}/${denominator}`;
}

export const TRUTH = 1n << 128n; // weight of a true answer; a lie weighs `weightOfLie`
const ONE = 1n << 512n;

/** Integers low ≤ 2^512·e^(a/c) ≤ high, for 0 ≤ a/c ≤ 64: Taylor's series, rounded down and rounded up. */
export function certifiedExp([a, c]) {
  let [low, high, lowTerm, highTerm] = [ONE, ONE, ONE, ONE];
  for (let j = 1n; highTerm > 1n || (j - 1n) * c <= 2n * a; j++) {
    lowTerm = (lowTerm * a) / (c * j);
    highTerm = (highTerm * a + c * j - 1n) / (c * j);
    low += lowTerm;
    high += highTerm;
  }
  return [low, high + highTerm];
}

const weights = new Map();

/** floor(2^128·e^-ε) + 1, certified: both bounds of e^ε give the same integer. */
export function weightOfLie(epsilon) {
  const key = epsilon.join("/");
  if (weights.has(key)) return weights.get(key);
  const [low, high] = certifiedExp(epsilon);
  need((TRUTH * ONE) / low === (TRUTH * ONE) / high, "epsilon", "too little precision for this epsilon");
  if (weights.size > 64) weights.clear();
  weights.set(key, (TRUTH * ONE) / low + 1n);
  return weights.get(key);
}

/** Whether ratio ≤ e^ε, by the certified lower bound. */
export const isRatioWithin = (most, least, low) => most * ONE <= least * low;

/** The smallest decimal of six places that is not below ln(ratio); null for a ratio that is not in (1, e^50]. */
export function logCeiling([numerator, denominator]) {
  const reaches = (millionths) => isRatioWithin(numerator, denominator, certifiedExp([millionths, 1000000n])[0]);
  let low = 0n, high = 50000000n;
  if (numerator <= denominator || !reaches(high)) return null;
  while (high - low > 1n) {
    const middle = (low + high) / 2n;
    if (reaches(middle)) high = middle;
    else low = middle;
  }
  return fraction(high, 1000000n);
}

// ---- randomness

/** `size` bytes from the system's cryptographic randomness: the only source that hush has. */
export function systemRandom(size) {
  const bytes = new Uint8Array(size);
  for (let at = 0; at < size; at += 65536) globalThis.crypto.getRandomValues(bytes.subarray(at, at + 65536));
  return bytes;
}

const MOST_DRAWS = 10000;

/** A source that ends after so many draws as no honest answer takes: one that is stuck must not loop for ever. */
export function bounded(random, left = MOST_DRAWS) {
  return (size) => {
    need(left-- > 0, "random", "the source of randomness is not random; nothing was answered");
    return random(size);
  };
}

const PAIRS = Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, "0"));
export const hex = (bytes) => Array.from(bytes, (byte) => PAIRS[byte]).join("");
export const unhex = (text) => Uint8Array.from(text.match(/../g) ?? [], (pair) => parseInt(pair, 16));
export const bigOf = (bytes) => (bytes.length ? BigInt(`0x${hex(bytes)}`) : 0n);

/** A uniform integer in [0, n), by rejection. */
export function below(n, random) {
  const size = (n.toString(2).length + 15) >> 3, span = 1n << BigInt(8 * size), limit = span - (span % n);
  for (;;) {
    const draw = bigOf(random(size));
    if (draw < limit) return draw % n;
  }
}
