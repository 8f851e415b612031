#!/usr/bin/env node
// A device that answers tasks in all their rounds, over MQTT, with its state in a directory.
import { readFileSync, readSync } from "node:fs";
import { Device, openDirectory } from "../src/node.js";

const HELP = `Usage: hush-device URL --device NAME --state DIRECTORY --value-file FILE [option …]

Answers every task that the broker publishes, once in each round, until it is stopped.

  URL                  mqtt://host, mqtts://host, ws://host:port or wss://…, perhaps with user:password@; or in HUSH_BROKER
  --user NAME          user name on the broker, if the address has none
  --password-file FILE a file whose first line is the password, so that no process list shows it
  --device NAME        its name; letters, digits and . _ @ : -
  --state DIRECTORY    what it has spent, and what is not sent yet; do not delete it; or in HUSH_STATE
  --value-file FILE    a file with the private value, read for each answer; missing or empty: no value; or
  --value -            a line of standard input is the private value; or
  --value VALUE        the private value itself; every user of the machine can read it in the process list
  --task ID            answer this task only; may be there more than once, or have several ids with commas
  --once               answer the open round, wait for the broker, and end
  --max-epsilon E      most that one task may cost (4)
  --lifetime E         most that all tasks of a purpose may cost (4)
  --total E            most that all tasks may cost
  --sticky             answer tasks whose answers show when the value changes
  --spread SECONDS     most seconds of the random delay before a report is sent (1)
  --keep SECONDS       for how long a report is kept after the broker's acknowledgement (a week)
  --timeout SECONDS    with --once: how long to wait (30)
  --ca FILE            certificates of the authority that signed the broker's
`;

const FLAGS = new Set(["once", "sticky", "help"]);

function readArguments(words) {
  const options = { task: [] }, rest = [];
  for (let i = 0; i < words.length; i++) {
    if (!words[i].startsWith("--")) rest.push(words[i]);
    else {
      const name = words[i].slice(2);
      if (!FLAGS.has(name) && !HELP.includes(`--${name} `)) fail(`there is no option --${name}; --help lists them`);
      const value = FLAGS.has(name) ? true : words[++i];
      if (value === undefined) fail(`--${name} needs a value`);
      if (name === "task") options.task.push(...value.split(","));
      else options[name] = value;
    }
  }
  return { options, rest };
}

function fail(message) {
  console.error(`hush-device: ${message}`);
  process.exit(2);
}

/** The first line of standard input; empty at its end. */
function readLine() {
  const bytes = [], byte = Buffer.alloc(1);
  while (bytes.length < 1 << 20) {
    try {
      if (!readSync(0, byte) || byte[0] === 10) break;
      bytes.push(byte[0]);
    } catch (error) {
      if (error.code !== "EAGAIN") break; // no standard input: no value
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 50); // what writes is slow, and the pipe does not block
    }
  }
  return Buffer.from(bytes).toString().trim();
}

/** The first line of a file. */
function readPassword(file) {
  try {
    return readFileSync(file, "utf8").split(/\r?\n/)[0];
  } catch (error) {
    return fail(`--password-file: ${file} cannot be read (${error.code}); name a file`);
  }
}

const { options, rest } = readArguments(process.argv.slice(2));
if (options.help) {
  console.log(HELP);
  process.exit(0);
}
options.state ??= process.env.HUSH_STATE;
if (!rest.length && process.env.HUSH_BROKER) rest.push(process.env.HUSH_BROKER);
for (const name of ["device", "state"]) if (!options[name]) fail(`--${name} is missing`);
if (rest.length !== 1) fail("give the address of one broker, for example mqtt://localhost, or set HUSH_BROKER");
if (options["password-file"] && !options.user && !/^[a-z]+:\/\/[^/@]+@/.test(rest[0])) fail("--password-file needs a user; give --user NAME");
if (options.value === "-") options.value = readLine();
if (options.once && !options.task.length) fail("--once needs --task");

const seconds = (name, missing) => {
  const value = Number(options[name] ?? missing);
  if (!(value >= 0)) fail(`--${name} is not a number of seconds`);
  return value;
};

/** The value as text; null where there is none. */
function readValue() {
  if (options.value !== undefined) return options.value || null;
  try {
    return readFileSync(options["value-file"], "utf8").replace(/\r?\n$/, "") || null;
  } catch {
    return null;
  }
}

const say = (receipt) => console.log(JSON.stringify(receipt));
let device;
try {
  const storage = await openDirectory(options.state), { update } = storage;
  storage.update = (step) => update(step).catch((error) => { // a restart reads the directory again
    if (error.status === "storage") fail(error.message);
    throw error;
  });
  device = new Device({
    url: rest[0], device: options.device, storage, username: options.user, password: options["password-file"] && readPassword(options["password-file"]), maxEpsilon: options["max-epsilon"],
    lifetime: options.lifetime, total: options.total, sticky: options.sticky === true, spread: seconds("spread", 1),
    keep: options.keep === undefined ? undefined : seconds("keep"), tls: options.ca && { ca: readFileSync(options.ca) },
    onChange: changed,
  });
  if (options.value === undefined && !options["value-file"]) fail("--value-file is missing; name the file with the value, or give --value -");
  await device.open();
} catch (error) {
  fail(error.message);
}

const answered = new Set();
let trouble = "";
function changed(it) {
  if (it.trouble !== trouble && it.trouble) console.error(`hush-device: ${it.trouble}; trying again`);
  trouble = it.trouble;
  if (!options.once && !options.task.length) for (const { id } of it.tasks) follow(id);
}

function follow(id) {
  if (answered.has(id)) return;
  answered.add(id);
  device.answerEachRound(id, readValue, { onReceipt: say, sourceTimeout: 0 }).catch((error) => fail(error.message));
}

for (const signal of ["SIGINT", "SIGTERM"]) process.on(signal, () => device.close().finally(() => process.exit(0)));
if (options.once) {
  let isSent = true;
  for (const id of options.task) {
    try {
      const receipt = await device.answer(id, readValue(), { timeout: seconds("timeout", 30) });
      say(receipt);
      isSent &&= receipt.status !== "refused";
    } catch (error) {
      console.error(`hush-device: ${error.message}`);
      isSent = false;
    }
  }
  if (!(await device.flush({ timeout: seconds("timeout", 30) }))) isSent = false;
  await device.close();
  process.exit(isSent ? 0 : 1);
}
if (options.task.length) options.task.forEach(follow);
else device.watchAll();
