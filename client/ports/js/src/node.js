// hush in node: import { Device, openDirectory, socketTo } from "hush-ldp/node".
import * as fs from "node:fs";
import { connect as connectTcp, isIP } from "node:net";
import { hostname } from "node:os";
import { dirname, join, resolve as absolute } from "node:path";
import { connect as connectTls } from "node:tls";
import { webcrypto } from "node:crypto";
import { Device as AnyDevice } from "./device.js";
import { webSocketTo } from "./mqtt.js";
import { HushError, need } from "./numbers.js";

globalThis.crypto ??= webcrypto; // node 18
export * from "./index.js";

/** A socket to "mqtt://host:1883", "mqtts://host:8883", "ws://…" or "wss://…"; `tls` has the options of node:tls. */
export function socketTo(url, tls = {}) {
  const { protocol, hostname: named, port } = new URL(url);
  if (["ws:", "wss:"].includes(protocol)) return webSocketTo(url);
  need(["mqtt:", "mqtts:"].includes(protocol), "argument", "the address does not begin with mqtt://, mqtts://, ws:// or wss://");
  const isSecure = protocol === "mqtts:", host = named.replace(/^\[|\]$/g, ""), where = { host, port: Number(port) || (isSecure ? 8883 : 1883) };
  return ({ onData, onClose }) => new Promise((resolve, reject) => {
    let isOpen = false;
    const ready = () => {
      isOpen = true;
      resolve({ send: (bytes) => socket.write(bytes), close: () => socket.destroy() });
    };
    const name = isIP(host) ? {} : { servername: host }; // an address is no name; the certificate must have it all the same
    const socket = isSecure ? connectTls({ ...name, ...where, ...tls }, ready) : connectTcp(where, ready);
    socket.setNoDelay(true);
    socket.on("data", onData);
    socket.on("error", (error) => {
      const failed = new HushError("network", `${isOpen ? "the connection was lost" : "no connection"}: ${error.message}`);
      reject(failed);
      onClose(failed);
    });
    socket.on("close", () => onClose("the connection was lost"));
  });
}

/** A device, as in the browser; `url` may begin with mqtt:// or mqtts:// too, and `tls` has the options of node:tls. */
export class Device extends AnyDevice {
  constructor({ tls, ...options }) {
    super({ socketTo: (url) => socketTo(url, tls), ...options });
  }
}

// ---- a directory: one file for each record, and a lock

const NAME = /^[a-z0-9][a-z0-9._-]{0,79}$/, LOCK = /^lock\.(\d{1,15})$/, ENDING = ".record";
const STALE_MS = 60000, BEAT_MS = 10000;
const failed = (error, directory) => new HushError("storage", `${directory} cannot be used: ${error.message}`);

const { O_CREAT, O_EXCL, O_NOFOLLOW = 0, O_RDONLY, O_WRONLY } = fs.constants; // no such flag on Windows
const NEW = O_WRONLY | O_CREAT | O_EXCL; // fails where something is, also a link

/** Make a directory for the owner alone. Anyone who may write to it could replace the ledger by one that spent nothing. */
function makePrivate(directory) {
  fs.mkdirSync(directory, { recursive: true, mode: 0o700 });
  if (process.platform === "win32") return;
  need(!(fs.statSync(directory).mode & 0o022), "storage",
    `other users may write to ${directory}, and so replace the ledger; name your own directory, or remove their permissions (chmod 700)`);
  for (const path of [absolute(directory), fs.realpathSync(directory)]) {
    for (let above = dirname(path), below = path; above !== below; below = above, above = dirname(above)) {
      const { mode } = fs.statSync(above); // a sticky bit, as of /tmp, protects the files of others
      need(!(mode & 0o002) || mode & 0o1000, "storage",
        `every user may write to ${above}, and so replace the ledger in ${directory}; name a directory elsewhere, or remove that permission (chmod o-w ${above})`);
    }
  }
}

/** Read a file that is not a link. */
function readFile(path) {
  const file = fs.openSync(path, O_RDONLY | O_NOFOLLOW);
  try {
    return fs.readFileSync(file);
  } finally {
    fs.closeSync(file);
  }
}

/** Write a file so that after a power cut there is the old one or the new one, whole. */
function replaceFile(directory, name, bytes) {
  const part = join(directory, `${name}.part`);
  fs.rmSync(part, { force: true }); // of a write that was cut off
  const file = fs.openSync(part, NEW, 0o600);
  try {
    for (let at = 0; at < bytes.length; ) at += fs.writeSync(file, bytes, at);
    fs.fsyncSync(file);
  } finally {
    fs.closeSync(file);
  }
  fs.renameSync(part, join(directory, name));
  syncDirectory(directory);
}

function syncDirectory(directory) {
  if (process.platform === "win32") return; // which has no such call
  const file = fs.openSync(directory, "r");
  try {
    fs.fsyncSync(file);
  } finally {
    fs.closeSync(file);
  }
}

const read = (path) => {
  try {
    return fs.readFileSync(path, "utf8").trim();
  } catch {
    return "";
  }
};
/** When a process was started, by the kernel: a number that is used again has another time. */
const startOf = (pid) => read(`/proc/${pid}/stat`).split(") ").at(-1).split(" ")[19] ?? "";
const namespace = () => {
  try {
    return fs.readlinkSync("/proc/self/ns/pid");
  } catch {
    return "";
  }
};
const me = () => ({ pid: process.pid, started: startOf(process.pid), boot: read("/proc/sys/kernel/random/boot_id"), namespace: namespace(), host: hostname() });

/** Whether the process that holds a lock may still run. Elsewhere (in another container), only its heartbeat tells. */
function isHeld(path) {
  let holder;
  try {
    holder = JSON.parse(readFile(path).toString());
  } catch {
    holder = null; // it was killed while it wrote the lock, and had not begun
  }
  if (holder?.free) return false;
  const mine = me(), isHere = holder && ["boot", "namespace", "host"].every((name) => holder[name] === mine[name]);
  if (!isHere) return Date.now() - fs.lstatSync(path).mtimeMs < STALE_MS;
  try {
    process.kill(holder.pid, 0);
  } catch (error) {
    return error.code === "EPERM";
  }
  return holder.pid !== process.pid ? startOf(holder.pid) === holder.started : HELD.has(path);
}

const HELD = new Set(); // of this process

/**
 * Take the lock of a directory: the file "lock.N" with the highest N. It is never removed, only followed by N + 1, which
 * one process alone can make; so nobody removes the lock of another. Returns its path and the open file.
 */
function lock(directory) {
  const numbers = () => fs.readdirSync(directory).flatMap((name) => LOCK.exec(name)?.slice(1).map(Number) ?? []).sort((a, b) => a - b);
  const path = (number) => join(directory, `lock.${number}`);
  for (let tries = 0; tries < 100; tries++) {
    const last = numbers().at(-1) ?? 0, next = path(last + 1);
    need(!last || !isHeld(path(last)), "storage", `${directory} is used by another process; give each device its own directory`);
    let file;
    try {
      file = fs.openSync(next, NEW, 0o600);
    } catch (error) {
      if (error.code === "EEXIST") continue;
      throw error;
    }
    fs.writeSync(file, JSON.stringify(me()));
    if (numbers().at(-1) !== last + 1) {
      fs.closeSync(file);
      fs.unlinkSync(next); // another has gone further meanwhile
      continue;
    }
    for (const older of numbers()) if (older <= last) fs.rmSync(path(older), { force: true });
    HELD.add(next);
    return { path: next, file };
  }
  throw new HushError("storage", `${directory} cannot be locked`);
}

/**
 * Open a directory as a storage; it is made if it is missing. Rejects with a HushError "storage" if another process uses
 * it, others may write to it, or it cannot be written. Do not delete it: it records what the device has spent.
 */
export async function openDirectory(directory) {
  let held, broken = null;
  const records = new Map();
  try {
    makePrivate(directory);
    held = lock(directory);
    for (const name of fs.readdirSync(directory)) {
      if (name.endsWith(".part")) fs.rmSync(join(directory, name));
      else if (name.endsWith(ENDING)) records.set(name.slice(0, -ENDING.length), new Uint8Array(readFile(join(directory, name))));
    }
  } catch (error) {
    throw error instanceof HushError ? error : failed(error, directory);
  }
  const beat = setInterval(() => fs.futimes(held.file, new Date(), new Date(), () => {}), BEAT_MS);
  beat.unref();
  const store = (name, bytes) => {
    need(NAME.test(name), "storage", `${name} is not the name of a record`);
    if (bytes) replaceFile(directory, name + ENDING, bytes);
    else {
      fs.rmSync(join(directory, name + ENDING), { force: true });
      syncDirectory(directory);
    }
  };
  return {
    async update(step) {
      if (broken) throw broken;
      for (const [name, bytes] of step(records)) {
        try {
          store(name, bytes);
        } catch (error) { // what is on the disk is not known now: a restart reads it
          throw (broken = failed(error, directory));
        }
        if (bytes) records.set(name, bytes);
        else records.delete(name);
      }
    },
    async close() {
      if (!HELD.delete(held.path)) return;
      clearInterval(beat);
      fs.ftruncateSync(held.file);
      fs.writeSync(held.file, '{"free":true}', 0);
      fs.closeSync(held.file);
      broken = new HushError("storage", `${directory} is closed`);
    },
  };
}
