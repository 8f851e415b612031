// hush-device, killed by SIGKILL at a step of its first answer. Usage: crash_child.mjs STEP URL DIRECTORY VALUE TASK
import { createRequire, syncBuiltinESMExports } from "node:module";

const require = createRequire(import.meta.url), fs = require("node:fs"), net = require("node:net");
const [step, url, directory, value, task] = process.argv.slice(2);
const die = () => {
  process.kill(process.pid, "SIGKILL");
  for (;;); // until the signal comes
};
let stores = 0, isRecord = false;
const [wanted, number = "1"] = step.split(" ");
const at = (name) => { if (isRecord && name === wanted && stores === Number(number)) die(); };
const around = (name, before, after) => {
  const original = fs[name];
  fs[name] = (...words) => {
    before(...words);
    const result = original(...words);
    after(...words);
    return result;
  };
};
around("openSync", (path) => {
  isRecord = `${path}`.includes("/task.") && `${path}`.endsWith(".part") ? (stores++, true) : isRecord;
  at("open");
}, () => at("opened"));
around("writeSync", () => {}, () => at("written"));
around("fsyncSync", () => {}, () => at("synced"));
around("renameSync", () => at("rename"), () => at("renamed"));
syncBuiltinESMExports();

const write = net.Socket.prototype.write;
net.Socket.prototype.write = function (bytes, ...words) {
  const isPublish = bytes[0] >> 4 === 3;
  if (isPublish && wanted === "publish") die();
  const result = write.call(this, bytes, ...words);
  if (isPublish && wanted === "published") setImmediate(die);
  return result;
};

process.argv = [process.argv[0], "hush-device", url, "--device", "d1", "--state", directory, "--value", value, "--task", task, "--once", "--spread", "0"];
await import(new URL("../../../client/ports/js/bin/hush-device.js", import.meta.url));
