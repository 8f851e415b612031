// SHA-256 (FIPS 180-4). `crypto.subtle` is missing in a page that is not served over TLS.

const primes = (count) => {
  const found = [];
  for (let n = 2; found.length < count; n++) if (found.every((p) => n % p)) found.push(n);
  return found;
};
// The first 32 bits after the binary point of a root, in integers: floor(root · 2^32) mod 2^32.
const rootBits = (n, degree) => {
  const target = BigInt(n) << BigInt(32 * degree);
  let low = 0n, high = 1n << 40n;
  while (high - low > 1n) {
    const middle = (low + high) >> 1n;
    if (middle ** BigInt(degree) <= target) low = middle;
    else high = middle;
  }
  return Number(low & 0xffffffffn) | 0;
};
const K = Int32Array.from(primes(64), (p) => rootBits(p, 3));
const START = Int32Array.from(primes(8), (p) => rootBits(p, 2));
const turn = (x, n) => (x >>> n) | (x << (32 - n));

/** The 32 bytes of SHA-256 over `bytes`. */
export function sha256(bytes) {
  const length = bytes.length, padded = new Uint8Array(((length + 72) >> 6) << 6);
  padded.set(bytes);
  padded[length] = 0x80;
  const view = new DataView(padded.buffer), state = START.slice(), w = new Int32Array(64);
  view.setUint32(padded.length - 8, Math.trunc(length / 0x20000000));
  view.setUint32(padded.length - 4, (length << 3) >>> 0);
  for (let at = 0; at < padded.length; at += 64) {
    for (let i = 0; i < 16; i++) w[i] = view.getInt32(at + 4 * i);
    for (let i = 16; i < 64; i++) {
      const x = w[i - 15], y = w[i - 2];
      w[i] = w[i - 16] + w[i - 7] + (turn(x, 7) ^ turn(x, 18) ^ (x >>> 3)) + (turn(y, 17) ^ turn(y, 19) ^ (y >>> 10));
    }
    let [a, b, c, d, e, f, g, h] = state;
    for (let i = 0; i < 64; i++) {
      const first = (h + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) + ((e & f) ^ (~e & g)) + K[i] + w[i]) | 0;
      const second = ((turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + ((a & b) ^ (a & c) ^ (b & c))) | 0;
      h = g, g = f, f = e, e = (d + first) | 0;
      d = c, c = b, b = a, a = (first + second) | 0;
    }
    state[0] += a, state[1] += b, state[2] += c, state[3] += d;
    state[4] += e, state[5] += f, state[6] += g, state[7] += h;
  }
  const out = new DataView(new ArrayBuffer(32));
  state.forEach((word, i) => out.setInt32(4 * i, word));
  return new Uint8Array(out.buffer);
}
