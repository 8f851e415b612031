import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import * as fs from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { Broker, HEIGHTS, deviceAt, hush } from "./world.mjs";

const { openDirectory } = hush;
const place = () => fs.mkdtempSync(join(tmpdir(), "hush-"));
const bytes = (text) => new TextEncoder().encode(text);
const put = (storage, name, text) => storage.update(() => [[name, text === null ? null : bytes(text)]]);
async function read(storage) {
  let found;
  await storage.update((records) => { found = Object.fromEntries([...records].map(([name, it]) => [name, new TextDecoder().decode(it)])); return []; });
  return found;
}
const records = (directory) => fs.readdirSync(directory).filter((name) => name.endsWith(".record")).sort();
const SRC = new URL("../../../client/ports/js/src/node.js", import.meta.url);

/** A process that opens the directory, prints a line, and holds it until it is killed. */
async function holder(directory) {
  const script = `import { openDirectory } from "${SRC}"; await openDirectory(${JSON.stringify(directory)}); console.log("open"); setInterval(() => {}, 1e6);`;
  const child = spawn(process.execPath, ["--input-type=module", "-e", script], { stdio: ["ignore", "pipe", "inherit"] });
  await new Promise((resolve, reject) => { child.stdout.once("data", resolve); child.once("exit", () => reject(new Error("it ended"))); });
  return { child, kill: () => new Promise((resolve) => { child.once("exit", resolve); child.kill("SIGKILL"); }) };
}

test("records are stored, replaced, removed, and there after a restart", async () => {
  const directory = place(), storage = await openDirectory(directory);
  await put(storage, "task.a", "1");
  await put(storage, "task.b", "2");
  await put(storage, "task.a", "3");
  await put(storage, "task.b", null);
  await storage.close();
  const again = await openDirectory(directory);
  assert.deepEqual(await read(again), { "task.a": "3" });
  assert.deepEqual(records(directory), ["task.a.record"]);
  assert.equal(fs.statSync(join(directory, "task.a.record")).mode & 0o777, 0o600);
  await again.close();
});

test("a directory that another process uses is refused, and taken over once that was killed", async () => {
  const directory = place(), other = await holder(directory);
  await assert.rejects(openDirectory(directory), { status: "storage", message: /used by another process/ });
  await other.kill();
  const storage = await openDirectory(directory);
  await put(storage, "task.a", "1");
  await storage.close();
});

test("one process opens a directory once at a time", async () => {
  const directory = place(), storage = await openDirectory(directory);
  await assert.rejects(openDirectory(directory), { status: "storage" });
  await storage.close();
  await (await openDirectory(directory)).close();
});

test("of many processes that take over the lock of a killed one at once, one gets it", async () => {
  for (let turn = 0; turn < 3; turn++) {
    const directory = place(), dead = await holder(directory);
    await dead.kill();
    const rivals = await Promise.allSettled(Array.from({ length: 6 }, () => holder(directory)));
    const winners = rivals.filter((it) => it.status === "fulfilled").map((it) => it.value);
    assert.equal(winners.length, 1);
    assert.equal(fs.readdirSync(directory).filter((name) => name.startsWith("lock.")).length, 1);
    await winners[0].kill();
  }
});

test("the number of a process that is used again does not hold a lock", async () => {
  const directory = place(), other = await holder(directory), [name] = fs.readdirSync(directory);
  await other.kill();
  const lock = JSON.parse(fs.readFileSync(join(directory, name), "utf8"));
  fs.writeFileSync(join(directory, name), JSON.stringify({ ...lock, pid: process.ppid }));
  await (await openDirectory(directory)).close();
});

test("a lock of another container is held while its heart beats", async () => {
  const directory = place(), other = await holder(directory), [name] = fs.readdirSync(directory);
  await other.kill();
  const lock = JSON.parse(fs.readFileSync(join(directory, name), "utf8"));
  fs.writeFileSync(join(directory, name), JSON.stringify({ ...lock, namespace: "another" }));
  await assert.rejects(openDirectory(directory), { status: "storage" });
  fs.utimesSync(join(directory, name), new Date(), new Date(Date.now() - 61000));
  await (await openDirectory(directory)).close();
});

test("what a killed write left behind is not a record", async () => {
  const directory = place();
  fs.writeFileSync(join(directory, "task.a.record.part"), "half");
  const storage = await openDirectory(directory);
  assert.deepEqual(await read(storage), {});
  assert.equal(fs.existsSync(join(directory, "task.a.record.part")), false);
  await storage.close();
});

test("a write that fails leaves the old record, and the storage answers no more until a restart", async () => {
  const directory = place(), storage = await openDirectory(directory);
  await put(storage, "task.a", "1");
  fs.mkdirSync(join(directory, "task.a.record.part"));
  await assert.rejects(put(storage, "task.a", "2"), { status: "storage" });
  fs.rmdirSync(join(directory, "task.a.record.part"));
  await assert.rejects(put(storage, "task.a", "3"), { status: "storage" });
  await storage.close();
  const again = await openDirectory(directory);
  assert.deepEqual(await read(again), { "task.a": "1" });
  await again.close();
});

for (const mode of [0o777, 0o770, 0o702]) test(`a directory of mode ${mode.toString(8)}, which others may write to, is refused`, async () => {
  const directory = join(place(), "state");
  fs.mkdirSync(directory);
  fs.chmodSync(directory, mode);
  await assert.rejects(openDirectory(directory), { status: "storage", message: /other users may write.*chmod 700/ });
  fs.chmodSync(directory, 0o755);
  await (await openDirectory(directory)).close();
});

test("a directory below one that everybody may write to is refused, unless that has a sticky bit", async () => {
  const above = place(), directory = join(above, "state");
  fs.chmodSync(above, 0o777);
  await assert.rejects(openDirectory(directory), { status: "storage", message: /every user may write/ });
  fs.chmodSync(above, 0o1777);
  await (await openDirectory(directory)).close();
});

/** A directory, and a file elsewhere that a link in the directory names. */
function linked(name) {
  const directory = place(), victim = join(place(), "victim");
  fs.writeFileSync(victim, "precious");
  fs.symlinkSync(victim, join(directory, name));
  return { directory, isUntouched: () => fs.readFileSync(victim, "utf8") === "precious" };
}

test("a link where a draft is written is not followed", async () => {
  const { directory, isUntouched } = linked("other");
  const storage = await openDirectory(directory);
  fs.renameSync(join(directory, "other"), join(directory, "task.a.record.part"));
  await put(storage, "task.a", "1");
  assert.ok(isUntouched());
  await storage.close();
  const again = await openDirectory(directory);
  assert.deepEqual(await read(again), { "task.a": "1" });
  await again.close();
});

test("a link in place of a record is replaced and not followed, and one at the start is refused", async () => {
  const { directory, isUntouched } = linked("other"), storage = await openDirectory(directory);
  fs.renameSync(join(directory, "other"), join(directory, "task.a.record"));
  await put(storage, "task.a", "1");
  await storage.close();
  assert.ok(isUntouched());
  const { directory: second, isUntouched: stillUntouched } = linked("task.a.record");
  await assert.rejects(openDirectory(second), { status: "storage" });
  assert.ok(stillUntouched());
});

test("a link in place of the lock is not followed at its end", async () => {
  const { directory, isUntouched } = linked("other"), storage = await openDirectory(directory);
  fs.rmSync(join(directory, "lock.1"));
  fs.renameSync(join(directory, "other"), join(directory, "lock.1"));
  await storage.close();
  assert.ok(isUntouched());
});

test("a link in place of a lock, and one to nowhere, lead to no other file", async () => {
  const { directory, isUntouched } = linked("lock.1"), elsewhere = join(place(), "made");
  fs.symlinkSync(elsewhere, join(directory, "lock.2"));
  await openDirectory(directory).then((storage) => storage.close(), (error) => assert.equal(error.status, "storage"));
  assert.ok(isUntouched());
  assert.equal(fs.existsSync(elsewhere), false);
});

test("a directory that cannot be made is a HushError", async () => {
  await assert.rejects(openDirectory("/dev/null/here"), { status: "storage" });
  const file = join(place(), "file");
  fs.writeFileSync(file, "");
  await assert.rejects(openDirectory(file), { status: "storage" });
});

test("a name that could leave the directory is refused", async () => {
  const storage = await openDirectory(place());
  for (const name of ["../a", "a/b", "", ".a", "A", "a".repeat(81)]) await assert.rejects(put(storage, name, "1"), { status: "storage" });
});

test("a device keeps its state in a directory", async () => {
  const directory = place(), broker = new Broker();
  broker.task(HEIGHTS);
  const first = await deviceAt(broker, { storage: await openDirectory(directory) }), receipt = await first.answer("heights", 172);
  await first.close();
  const second = await deviceAt(broker, { storage: await openDirectory(directory) });
  assert.equal((await second.answer("heights", 172)).report, receipt.report);
  assert.equal(broker.received.length, 1);
  await second.close();
});
