// Speaks for the JavaScript package in tests, as driver.c does for C: the orders and outcomes are described there.
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";

const hush = await import(`file://${process.argv[2]}/ports/js/src/core.js`);
const plain = (word) => Uint8Array.from(Buffer.from(word === "-" ? "" : word, "hex"));
const text = (word) => Buffer.from(plain(word)).toString();
const valueOf = (word) => (word === "none" ? null : text(word));
const parts = (bytes, size) => Array.from({ length: bytes.length / size }, (_, i) => bytes.subarray(size * i, size * (i + 1)));
const integers = (word) => parts(Buffer.from(plain(word)), 8).map((bytes) => bytes.readBigInt64BE());

function scripted(bytes) { // in tests alone
  const script = (size) => {
    if (script.left < size) throw new hush.HushError("random", "the script ends");
    script.left -= size;
    return bytes.slice(bytes.length - script.left - size, bytes.length - script.left);
  };
  script.left = bytes.length;
  return script;
}

function decide(payload, most, now, charged = false) {
  const task = hush.readTask(plain(payload)), round = hush.currentRound(task, Number(now));
  return { task, round, ...hush.chooseOffer(task, { maxEpsilon: most }, { charged }) };
}

function facts({ task, ...decided }, sender, value, random, memory = null) {
  const report = hush.draw(task, value, { ...decided, random, memory });
  const words = [hush.hex(task.digest), hush.hex(report.id), report.body, report.value, random.left];
  const topic = hush.reportTopic(task.id, sender), frame = hush.hex(hush.encodeFrame([report]));
  return [[...words, topic, frame, hush.encodeJson(report)].join(" "), report.memory];
}

const file = scripted(process.argv.length > 3 ? readFileSync(process.argv[3]) : Buffer.alloc(0));
const orders = {
  answer(most, now, sender, value, payload, random) {
    return facts(decide(payload, most, now), sender, valueOf(value), scripted(plain(random)))[0];
  },
  decide(most, now, payload) {
    const { round, offer, cost } = decide(payload, most, now);
    return `${round} ${offer} ${cost.join("/")}`;
  },
  sticky(most, sender, payload, random, ...given) {
    const script = scripted(plain(random)), answers = [];
    for (let memory = null; given.length; ) {
      const [now, value] = given.splice(0, 2), decided = decide(payload, most, now, memory !== null);
      const [words, drawn] = facts(decided, sender, valueOf(value), script, memory);
      answers.push(words);
      memory = drawn;
    }
    return answers.join(" | ");
  },
  frame(round, width, _, digest, ids, bodies) {
    const numbers = integers(bodies), body = (i) => numbers.slice(width * i, width * (i + 1));
    const report = (id, i) => ({ digest: plain(digest), round: Number(round), id, body: body(i) });
    return hush.hex(hush.encodeFrame(parts(plain(ids), 16).map(report)));
  },
  json(round, _, task, digest, id, body) {
    return hush.encodeJson({ task, digest: plain(digest), round, id: plain(id), body: integers(body) });
  },
  topic(_, task, sender) {
    return hush.reportTopic(text(task), text(sender));
  },
  recall(payload, frame, random) {
    const found = hush.readRecall(plain(payload));
    if (!found) throw new hush.HushError("malformed", "no recall");
    const asked = hush.isRecalled(found, "heights", plain(frame)) ? "yes" : "no";
    const words = [found.task, hush.hex(found.digest), hush.hex(found.id), found.spread, asked];
    return [...words, hush.recallDelay(found, scripted(plain(random))), hush.recallTopic(found.task)].join(" ");
  },
  kept(acknowledged, closes, keep, spread) {
    const scheduled = spread === "none" ? null : { spread: Number(spread) };
    const until = hush.keptUntil(Number(acknowledged), closes === "none" ? Infinity : Number(closes), Number(keep), scheduled);
    return until === Infinity ? "none" : until;
  },
  sample(count, index, payload) {
    const task = hush.readTask(plain(payload)), random = hush.bounded(file, Infinity);
    return Array.from({ length: count }, () => task.randomizers[0].perturb(BigInt(index), random)[0]).join(" ");
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
