// Reads JSON as hush publishes it, left to right. `JSON.parse` hides a key that appears twice, takes 1.0 for 1, and
// rounds integers above 2^53; the weights of a table have up to 128 bits.
import { HushError, need } from "./numbers.js";

// Characters that no text has: controls, formats, white space but the space, private use; docs/wire.md has the list.
const UNPRINTABLE = new RegExp("(?![\\t\\n\\r])[\\0-\\x1f\\x7f-\\xa0\\xad\\u0600-\\u0605\\u061c\\u06dd\\u070f" +
  "\\u0890\\u0891\\u08e2\\u1680\\u180e\\u2000-\\u200f\\u2028-\\u202f\\u205f-\\u206f\\u3000\\ud800-\\uf8ff" +
  "\\ufdd0-\\ufdef\\ufeff\\ufff0-\\ufffb\\u{110bd}\\u{110cd}\\u{13430}-\\u{1343f}\\u{1bca0}-\\u{1bca3}" +
  "\\u{1d173}-\\u{1d17a}\\u{e0000}-\\u{e00ff}\\u{e01f0}-\\u{e0fff}\\u{f0000}-\\u{10ffff}]|\\p{Noncharacter_Code_Point}", "u");
const WORD = /[0-9A-Za-z_+.-]+/y;
const NUMBER = /^-?(?:0|[1-9]\d*)(\.\d+)?([eE][-+]?\d+)?$/;
const TEXT = /"((?:[^"\\]|\\.)*)"/sy;
const SPACE = /[ \t\n\r]*/y;

/** The text of bytes that are UTF-8 and printable; a HushError "malformed" otherwise. */
export function decodeText(bytes) {
  let text = "\0";
  try {
    text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch { /* reported below */ }
  need(!UNPRINTABLE.test(text), "malformed", "it is not UTF-8, or has a character that is not printable");
  return text;
}

/**
 * Parse a document. An object becomes a Map, an integer a BigInt, another number a Number.
 * `limits` is { depth, keys }: how many brackets may be open at one place, and keys in all.
 */
export function parseJson(text, { depth, keys }) {
  let at = 0, open = 0, seen = 0;
  const fail = () => { throw new HushError("malformed", "it is not JSON"); };
  const next = (pattern) => {
    pattern.lastIndex = at;
    const found = pattern.exec(text);
    if (found) at = pattern.lastIndex;
    return found;
  };
  const take = (character) => {
    next(SPACE);
    if (text[at] !== character) return false;
    at++;
    return true;
  };
  const string = () => {
    const [, inner] = next(TEXT) ?? fail();
    if (/[\t\n\r]/.test(inner)) fail();
    const plain = inner.replace(/\\(["\\])/g, (_, character) => (character === "\\" ? "\0" : '"'));
    need(!plain.includes("\\"), "task", "an escape that hush does not publish");
    return plain.replaceAll("\0", "\\");
  };
  const word = () => {
    const [token] = next(WORD) ?? fail();
    need(token.length <= 100, "task", "a number is too long");
    if (token === "true" || token === "false") return token === "true";
    need(token !== "null", "task", "hush publishes no null");
    const [, decimals, power] = NUMBER.exec(token) ?? fail();
    return decimals || power ? Number(token) : BigInt(token);
  };
  const list = () => {
    const items = [];
    if (take("]")) return items;
    do items.push(value()); while (take(","));
    return take("]") ? items : fail();
  };
  const object = () => {
    const fields = new Map();
    if (take("}")) return fields;
    do {
      next(SPACE);
      const key = string();
      need(++seen <= keys, "task", "it has too many keys");
      need(!fields.has(key), "task", "a key is there twice");
      if (!take(":")) fail();
      fields.set(key, value());
    } while (take(","));
    return take("}") ? fields : fail();
  };
  const value = () => {
    next(SPACE);
    const character = text[at];
    if (character === '"') return string();
    if (character !== "{" && character !== "[") return word();
    at++;
    need(++open <= depth, "task", `more than ${depth} brackets are open`);
    const found = character === "{" ? object() : list();
    open--;
    return found;
  };
  const found = value();
  next(SPACE);
  return at === text.length ? found : fail();
}
