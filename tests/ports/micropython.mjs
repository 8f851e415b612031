// MicroPython compiled to WebAssembly, where the distribution has no package of it:
//     node micropython.mjs MODULE PROGRAM [PATH ...]
// MODULE is micropython.mjs of the npm package, PROGRAM a file, and so is each PATH, or a directory; they have the same
// names inside. Where the program has a function `respond`, it gets each line of standard input.
import { randomBytes } from "node:crypto";
import { readFileSync, readdirSync, statSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { createInterface } from "node:readline";

const [module, ...names] = process.argv.slice(2);
const paths = names.map((name) => resolve(name));
const { loadMicroPython } = await import(`file://${module}`);
const micropython = await loadMicroPython({
  heapsize: 64 << 20, // as tests give to the port to unix
  pystack: 16 << 10,
  stdout: (line) => console.log(line),
});

function copy(path) {
  const isDirectory = statSync(path).isDirectory();
  micropython.FS.mkdirTree(isDirectory ? path : dirname(path));
  if (!isDirectory) return micropython.FS.writeFile(path, readFileSync(path));
  const inside = readdirSync(path, { withFileTypes: true });
  for (const { name } of inside.filter((it) => it.isFile() || ["ports", "micropython"].includes(it.name))) copy(`${path}/${name}`);
}
paths.forEach(copy);
micropython.registerJsModule("machine_random", { hexadecimal: (size) => randomBytes(size).toString("hex") });
micropython.globals.set("paths", JSON.stringify(paths));
micropython.globals.set("directory", process.cwd());
micropython.runPython(`
import binascii, json, machine_random, os, sys
os.urandom = lambda count: binascii.unhexlify(machine_random.hexadecimal(count))  # which this build has not
sys.argv[:] = json.loads(paths)
folder, _, name = sys.argv[0].rpartition("/")
sys.path.insert(0, folder)
if directory in sys.argv:
    os.chdir(directory)
respond = getattr(__import__(name[:-3]), "respond", None)
`);
const respond = micropython.globals.get("respond");
if (respond) for await (const line of createInterface({ input: process.stdin })) respond(line);
