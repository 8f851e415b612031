// Speaks for hush_node.mjs in tests, as driver.c does for hush.c: the orders and outcomes are described there.
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";

const hush = await import(`file://${process.argv[2]}/ports/hush_node.mjs`);
const recalls = await import(`file://${process.argv[2]}/ports/hush_node_recall.mjs`);
const plain = (word) => Buffer.from(word === "-" ? "" : word, "hex");
const parts = (bytes, size) => Array.from({ length: bytes.length / size }, (_, i) => bytes.subarray(size * i, size * (i + 1)));
const integers = (word) => parts(plain(word), 8).map((bytes) => bytes.readBigInt64BE());

function scripted(bytes) { // in tests alone
  const script = (size) => {
    if (script.left < size) throw new hush.HushError("random", "the script ends");
    script.left -= size;
    return bytes.subarray(bytes.length - script.left - size, bytes.length - script.left);
  };
  script.left = bytes.length;
  return script;
}

const file = scripted(process.argv.length > 3 ? readFileSync(process.argv[3]) : Buffer.alloc(0));
const orders = {
  answer(most, now, sender, value, payload, random) {
    const task = hush.readTask(plain(payload), most), source = scripted(plain(random));
    const report = hush.answer(task, value === "none" ? null : plain(value).toString(), Number(now), source);
    const facts = [task.digest.toString("hex"), report.id.toString("hex"), report.body, report.value, source.left];
    const topic = hush.reportTopic(task.id, sender), frame = hush.encodeFrame([report]).toString("hex");
    return [...facts, topic, frame, hush.encodeJson(report)].join(" ");
  },
  frame(round, width, _, digest, ids, bodies) {
    const numbers = integers(bodies), body = (i) => numbers.slice(width * i, width * (i + 1));
    const report = (id, i) => ({ digest: plain(digest), round: Number(round), id, body: body(i) });
    return hush.encodeFrame(parts(plain(ids), 16).map(report)).toString("hex");
  },
  json(round, _, task, digest, id, body) {
    return hush.encodeJson({ task, digest: plain(digest), round, id: plain(id), body: integers(body) });
  },
  topic(_, task, sender) {
    return hush.reportTopic(plain(task).toString(), plain(sender).toString());
  },
  recall(payload, frame, random) {
    const found = recalls.readRecall(plain(payload));
    if (!found) throw new hush.HushError("malformed", "no recall");
    const asked = recalls.isRecalled(found, "heights", plain(frame)) ? "yes" : "no";
    const facts = [found.task, found.digest.toString("hex"), found.id.toString("hex"), found.spread, asked];
    return [...facts, recalls.recallDelay(found, scripted(plain(random))), recalls.recallTopic(found.task)].join(" ");
  },
  kept(acknowledged, closes, keep, spread) {
    const scheduled = spread === "none" ? null : { spread: Number(spread) };
    const until = recalls.keptUntil(Number(acknowledged), closes === "none" ? Infinity : Number(closes), Number(keep), scheduled);
    return until === Infinity ? "none" : until;
  },
  sample(count, index, payload) {
    const task = hush.readTask(plain(payload), "50");
    return Array.from({ length: count }, () => hush.perturb(task, BigInt(index), file)).join(" ");
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const [name, ...words] = line.split(" ");
  let outcome;
  try {
    outcome = `ok ${orders[name](...words)}`;
  } catch (error) {
    if (!(error instanceof hush.HushError)) throw error;
    outcome = error.status;
  }
  console.log(outcome);
}
