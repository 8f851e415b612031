// The participant's page: it shows the questions that are open, and answers each one once, with noise.
import { Device, hex, openIndexedDB, systemRandom } from "./hush/index.js";

const NAME = "hush-poll-device", TRY_MS = 5000;
const connection = document.getElementById("connection"), waiting = document.getElementById("waiting");
const questions = [...document.querySelectorAll(".question")].map((article) => ({
  article, id: article.dataset.task, kind: article.dataset.kind, form: article.querySelector("form"),
  receipt: article.querySelector(".receipt"), state: "unknown",
}));

const REFUSED = {
  spent: "Your phone has given away as much as it allows for this purpose. It answers nothing more, which protects you.",
  epsilon: "This question hides less than your phone allows. It does not answer.",
  closed: "This question is closed. Nothing was sent.",
  not_open: "This question is not open yet.",
  storage: "Your browser does not let this page store anything. Then it could answer twice, so it does not answer. "
    + "Leave the private window, or allow this page to store data.",
};
const FULL = "All places of this poll are taken. Nothing was asked or sent.";
const PEOPLE = { number: "people with every answer send such numbers", bit: "people with either answer send it",
  category: "people with every answer send it" };

/** The name of this browser on the broker: random, so that it says nothing, and kept, so that it is one sender. */
function ownName() {
  let name = localStorage.getItem(NAME);
  if (!/^[0-9a-f]{32}$/.test(name ?? "")) localStorage.setItem(NAME, (name = hex(systemRandom(16))));
  return name;
}

/** The login that this browser has on the broker of the poll; none where the broker needs none, null where none is left. */
async function ownLogin(name) {
  const { login } = document.body.dataset;
  if (!login) return {};
  for (;;) {
    try {
      const answer = await fetch(login, { cache: "no-store", headers: { "X-Hush-Browser": name } });
      if (answer.status === 409) return null;
      if (answer.ok) {
        const { user, password } = await answer.json();
        return { username: user, password };
      }
    } catch { /* no connection: the next attempt may have one */ }
    connection.textContent = "No connection; trying again …";
    await new Promise((resolve) => { setTimeout(resolve, TRY_MS); });
  }
}

/** A number as text, with a narrow gap between thousands and a minus sign. */
const grouped = (text) => text.replace(/^-/, "\u2212").replace(/\d{5,}(?![\d.]*\d*e)/g, (digits, at, all) =>
  (all[at - 1] === "." ? digits : digits.replace(/\B(?=(\d{3})+$)/g, "\u202f")));

function paragraphs(place, ...texts) {
  place.replaceChildren(...texts.filter(Boolean).map(([text, name]) => {
    const made = document.createElement("p");
    made.textContent = text;
    if (name) made.className = name;
    return made;
  }));
}

const shown = (question, text) => (question.kind === "number" ? grouped(text).replace(" ", "\u00a0") : `“${text}”`);
const sentence = (question, text) => `Your phone sent ${shown(question, text)}: ${PEOPLE[question.kind]}.`;

function show(question, state) {
  question.state = state;
  question.form.hidden = state !== "open";
  question.article.hidden = ["unknown", "gone"].includes(state);
  const visible = questions.some((it) => !it.article.hidden);
  waiting.hidden = visible;
  const open = questions.some((it) => it.state === "open");
  if (visible && !open && questions.some((it) => it.state === "unknown")) {
    waiting.hidden = false;
    waiting.textContent = "The next question appears here by itself.";
  }
}

const delivered = (isWaiting) => (isWaiting
  ? ["It has not arrived yet. Leave this page open: your phone sends it by itself once there is a connection.", "delivery late"]
  : ["It has arrived. Thank you.", "delivery"]);

/** Tell when the answer has arrived: another tab may be the one that sends it, so the storage is read again and again. */
async function followDelivery(device, question) {
  const late = question.receipt.querySelector(".delivery.late");
  while (late?.isConnected) {
    if (await device.flush({ timeout: 30 })) {
      [late.textContent, late.className] = delivered(false);
      return;
    }
  }
}

function showAnswered(device, question, receipt) {
  paragraphs(question.receipt,
    ["You have answered this question already, in this browser.", "said"],
    receipt.text && [sentence(question, receipt.text)],
    ["One answer counts, so nothing was sent now. Your phone does not keep what you said."],
    delivered(receipt.waiting));
  show(question, "answered");
  void followDelivery(device, question);
}

/** Read whether a question may be answered, and show its form; nobody has been asked for a value yet. */
async function admit(device, question) {
  question.state = "asking";
  try {
    const receipt = await device.admit(question.id, { timeout: 10 });
    if (receipt.status === "open") return show(question, "open");
    if (receipt.status === "answered") return showAnswered(device, question, receipt);
    refuse(question, receipt.reason, receipt.message);
  } catch (error) {
    if (error.status === "no_task" || error.status === "network") return show(question, "unknown");
    refuse(question, error.status, error.message);
  }
  return undefined;
}

function refuse(question, reason, message) {
  paragraphs(question.receipt, [REFUSED[reason] ?? `Your phone does not answer: ${message}.`, "warning"]);
  show(question, "refused");
}

async function answer(device, question, value, said) {
  const button = question.form.querySelector("button"), receipt = question.receipt;
  button.disabled = true;
  paragraphs(receipt, ["Adding noise …"]);
  try {
    const done = await device.answer(question.id, value, { timeout: 3 });
    if (done.status === "answered") showAnswered(device, question, done);
    else if (done.status === "refused") refuse(question, done.reason, done.message);
    else {
      paragraphs(receipt, [`You said ${shown(question, said)}. ${sentence(question, done.text)}`, "said"],
        ["What you said stays here, and is not stored."], delivered(done.status === "queued"));
      show(question, "answered");
      void followDelivery(device, question);
    }
    receipt.focus();
    await account(device);
  } catch (error) {
    refuse(question, error.status, error.message);
  } finally {
    button.disabled = false;
  }
}

/** What this browser has spent in all. */
async function account(device) {
  const { total, tasks } = await device.ledger(), answers = tasks.filter((it) => it.rounds > 0).length;
  document.getElementById("spent").textContent = answers === 0 ? ""
    : `Your phone has answered ${answers} question${answers === 1 ? "" : "s"} at this address and spent epsilon ${total}; its limit is 4 for one purpose.`;
}

function follow(device) {
  connection.textContent = device.connected ? "Connected" : device.trouble ? "No connection; trying again …" : "Connecting …";
  connection.classList.toggle("late", !device.connected && Boolean(device.trouble));
  const known = new Set(device.tasks.map((task) => task.id));
  for (const question of questions) {
    const state = question.state;
    if (known.has(question.id)) {
      if (["unknown", "gone"].includes(state)) void admit(device, question);
    } else if (device.connected && state === "open") {
      refuse(question, "closed");
    }
  }
  if (device.trouble && !device.connected && !waiting.hidden) waiting.textContent = "There is no connection to the poll. Your phone tries again by itself.";
}

async function start() {
  const url = new URL(document.body.dataset.broker, location.href);
  url.protocol = url.protocol.replace("http", "ws");
  let device;
  const refuseAll = (text) => {
    connection.textContent = "";
    waiting.textContent = text;
    waiting.classList.add("warning");
  };
  try {
    const name = ownName(), storage = await openIndexedDB("hush-poll"), login = await ownLogin(name);
    if (!login) return refuseAll(FULL);
    device = new Device({ url: url.href, storage, device: name, spread: 0, onChange: follow, ...login });
    await device.open();
  } catch (error) {
    refuseAll(REFUSED.storage);
    throw error;
  }
  for (const question of questions) {
    question.form.addEventListener("submit", (event) => {
      event.preventDefault();
      const form = question.form, value = new FormData(form).get("answer");
      const unit = question.article.dataset.unit;
      void answer(device, question, value, unit ? `${value} ${unit}` : value);
    });
  }
  device.watchAll();
  await account(device);
  setTimeout(() => { // nothing is published: the poll is over, or the next question is not open yet
    if (device.connected && questions.every((it) => it.state === "unknown")) {
      waiting.textContent = "No question is open. If the poll goes on, the next one appears here by itself.";
    }
  }, TRY_MS);
  return undefined;
}

await start();
