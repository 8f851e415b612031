// A device that runs in MicroPython itself, by the contract of docs/conform.md: node does MQTT 3.1.1 and the files.
//     node micropython_device.mjs MODULE PORT
// MODULE is micropython.mjs of the npm package; PORT is client/ports/micropython.
import { randomBytes } from "node:crypto";
import * as fs from "node:fs";
import { connect } from "node:net";
import { dirname } from "node:path";

const [module, port] = process.argv.slice(2), env = process.env;
const { loadMicroPython } = await import(`file://${module}`);
const python = await loadMicroPython({ heapsize: 8 << 20, pystack: 16 << 10, stdout: (line) => console.log(line) });
const sync = (path, flags, write = () => {}) => {
  const file = fs.openSync(path, flags, 0o600);
  write(file);
  fs.fsyncSync(file);
  fs.closeSync(file);
};
python.registerJsModule("machine_files", {
  read: (path) => fs.existsSync(path) ? fs.readFileSync(path).toString("hex") : null,
  write: (path, hex) => sync(path, "w", (file) => fs.writeSync(file, Buffer.from(hex, "hex"))),
  rename: (path, name) => (fs.renameSync(path, name), sync(dirname(name), "r")),
  remove: (path) => fs.rmSync(path, { force: true }),
  names: (path) => JSON.stringify(fs.readdirSync(path)),
  settings: () => JSON.stringify({
    task: env.HUSH_TASK, sender: env.HUSH_SENDER, state: env.HUSH_STATE, broker: env.HUSH_BROKER,
    max_epsilon: env.HUSH_MAX_EPSILON ?? "4", spread: Math.round(1000 * Number(env.HUSH_SPREAD ?? 1)),
  }),
  now: () => String(Date.now()), // as text: a number of more than 32 bits is a float inside
  value: () => fs.readFileSync(env.HUSH_VALUE_FILE, "utf8").trim(),
  random: (size) => randomBytes(size).toString("hex"),
});
python.FS.mkdirTree("/port");
for (const name of ["hush_micropython.py", "hush_device.py"]) python.FS.writeFile(`/port/${name}`, fs.readFileSync(`${port}/${name}`));
python.FS.writeFile("/port/device.py", fs.readFileSync(`${import.meta.dirname}/micropython_device.py`));
python.runPython(`
import binascii, machine_files, os, sys
os.urandom = lambda count: binascii.unhexlify(machine_files.random(count))
sys.argv[:] = ["", "/port"]
exec(open("/port/device.py").read())
`);
const device = (name) => python.globals.get(name);

// ---- MQTT 3.1.1, as much as a device needs
const text = (value) => Buffer.concat([Buffer.from([value.length >> 8, value.length & 255]), Buffer.from(value)]);
function packet(type, ...parts) {
  const body = Buffer.concat(parts), size = [];
  for (let left = body.length; size.length === 0 || left > 0; left = left >> 7) size.push((left & 127) | (left > 127 ? 128 : 0));
  return Buffer.concat([Buffer.from([type, ...size]), body]);
}
const number = (value) => Buffer.from([value >> 8, value & 255]);

function serve() {
  const { hostname, port } = new URL(env.HUSH_BROKER), socket = connect(Number(port), hostname), flying = new Map();
  const topics = new Set();
  let id = 0, data = Buffer.alloc(0), timer, reason = "";
  const next = () => (id = id % 65535 + 1);
  const subscribe = (topic) => topics.has(topic) || (topics.add(topic), socket.write(packet(0x82, number(next()), text(topic), Buffer.from([1]))));
  function tick() {
    if (!topics.size) return;
    const refused = device("answer")();
    if (refused !== reason && refused) console.log(refused);
    reason = refused;
    for (const topic of JSON.parse(device("recall_topics")())) subscribe(topic);
    for (const [key, topic, frame] of JSON.parse(device("due")())) {
      if ([...flying.values()].includes(key)) continue;
      flying.set(next(), key);
      socket.write(packet(0x32, text(topic), number(id), Buffer.from(frame, "hex")));
    }
  }
  function handle(type, body) {
    if (type >> 4 === 2) {
      for (const task of env.HUSH_TASK.split(",")) subscribe(`hush/v1/tasks/${task}`);
      timer = setInterval(tick, 100);
    } else if (type >> 4 === 3) {
      const end = 2 + body.readUInt16BE(0), qos = type >> 1 & 3;
      device("receive")(body.subarray(2, end).toString(), body.subarray(end + (qos ? 2 : 0)).toString("hex"));
      if (qos) socket.write(packet(0x40, body.subarray(end, end + 2)));
    } else if (type >> 4 === 4 && flying.has(body.readUInt16BE(0))) {
      const key = flying.get(body.readUInt16BE(0));
      flying.delete(body.readUInt16BE(0));
      device("acknowledged")(key);
    }
  }
  socket.on("connect", () => socket.write(packet(0x10, text("MQTT"), Buffer.from([4, 2, 0, 60]), text(`${env.HUSH_SENDER}-${randomBytes(6).toString("hex")}`))));
  socket.on("data", (more) => {
    data = Buffer.concat([data, more]);
    for (;;) {
      let size = 0, at = 1;
      do {
        if (at >= data.length) return;
        size |= (data[at] & 127) << 7 * (at - 1);
      } while (data[at++] & 128);
      if (data.length < at + size) return;
      handle(data[0], data.subarray(at, at + size));
      data = data.subarray(at + size);
    }
  });
  const alive = setInterval(() => (socket.write(packet(0xc0)), device("tidy")()), 30_000);
  socket.on("error", () => {});
  socket.on("close", () => {
    clearInterval(timer);
    clearInterval(alive);
    setTimeout(serve, 500);
  });
}
serve();
