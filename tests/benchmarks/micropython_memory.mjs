// Bytes of MicroPython's heap that the port takes, and its processor time, in MicroPython for WebAssembly (as on a board, a pointer has 4 bytes):
//     node micropython_memory.mjs MODULE PORT TASK.json
// MODULE is micropython.mjs of the npm package, PORT client/ports/micropython, and the task one about a number.
import { randomBytes } from "node:crypto";
import * as fs from "node:fs";

const [module, port, file] = process.argv.slice(2);
const { loadMicroPython } = await import(`file://${module}`);
const python = await loadMicroPython({ heapsize: 4 << 20, pystack: 16 << 10, stdout: (line) => console.log(line) });
for (const directory of ["/port", "/state"]) python.FS.mkdirTree(directory);
for (const name of ["hush_micropython.py", "hush_device.py"]) python.FS.writeFile(`/port/${name}`, fs.readFileSync(`${port}/${name}`));
const payload = fs.readFileSync(file);
python.FS.writeFile("/task.json", payload);

/** Run a step; print what is in use after it, and what it allocated in all. Garbage is collected only between steps. */
function measure(what, step) {
  python.runPython("gc.collect()");
  const before = process.cpuUsage();
  python.runPython(`before = gc.mem_alloc()\n${step}\nmade = gc.mem_alloc() - before`);
  const { user } = process.cpuUsage(before);
  python.runPython("gc.collect()");
  python.runPython(`print("${what}: in use", gc.mem_alloc(), "allocated", made, "in ${Math.round(user / 1000)} ms")`);
}

python.registerJsModule("machine_random", { random: (size) => randomBytes(size).toString("hex") });
python.runPython(`import binascii, gc, machine_random, os, sys
os.urandom = lambda count: binascii.unhexlify(machine_random.random(count))
sys.path.insert(0, "/port")`);
measure("nothing", "");
measure("import hush_micropython", "import hush_micropython");
measure("import hush_device", "import hush_device");
measure("a device", `
class Disk(hush_device.Disk):
    def lock(self, path):
        return lambda: None
policy = hush_device.Policy()
policy.max_epsilon = policy.lifetime = "50"
device = hush_device.Device(hush_device.Files("/state", Disk()), "sensor", lambda: 1800000000000, policy, "mqtt://broker")`);
measure(`a task of ${payload.length} bytes`, `
with open("/task.json", "rb") as file:
    device.receive("hush/v1/tasks/${JSON.parse(payload).id}", file.read())`);
measure("an answer, charged and stored", `device.answer("${JSON.parse(payload).id}", "21.5")`);
measure("its acknowledgement", `
for key, topic, frame in device.due(1800000100000):
    device.acknowledged(key)`);
