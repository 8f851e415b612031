import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { test } from "node:test";
import { hush } from "./world.mjs";

const expected = (bytes) => createHash("sha256").update(bytes).digest("hex");

test("SHA-256 is node's for every length around the paddings, and thousands of others", () => {
  for (let size = 0; size < 300; size++) for (let i = 0; i < 5; i++) {
    const bytes = randomBytes(size);
    assert.equal(hush.hex(hush.sha256(bytes)), expected(bytes), `${size} bytes`);
  }
  for (let i = 0; i < 2000; i++) {
    const bytes = randomBytes(1 + (i * 7919) % 5000);
    assert.equal(hush.hex(hush.sha256(bytes)), expected(bytes));
  }
});

test("it is node's for a task of 64 KiB, and for a megabyte", () => {
  for (const size of [65535, 65536, 1 << 20]) assert.equal(hush.hex(hush.sha256(new Uint8Array(size).fill(0x5a))), expected(new Uint8Array(size).fill(0x5a)));
});

test("hexadecimal text is read back", () => {
  const bytes = Uint8Array.from({ length: 256 }, (_, i) => i);
  assert.deepEqual(hush.unhex(hush.hex(bytes)), bytes);
  assert.deepEqual(hush.unhex(""), new Uint8Array(0));
});
