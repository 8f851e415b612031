// Creates a task. The service checks what is typed and renders the label; then it is given the very bytes of that
// preview. The token is in its field and in the header of a request, and nowhere else.

const form = document.getElementById("draft");
const token = document.getElementById("token");
const said = document.getElementById("said");
const LOOK_MS = 1000; // between two looks at who publishes the task
const LOOKS = 20;

document.documentElement.classList.add("scripted");

async function ask(path, options = {}) {
  const given = token.value.trim();
  if (!/^[\x21-\x7e]+$/.test(given)) return refuse(given ? "This is not a token." : "Paste a token first.");
  const headers = { Authorization: `Bearer ${given}`, "Content-Type": "application/json" };
  let answer;
  try {
    answer = await fetch(path, { ...options, headers, credentials: "same-origin", cache: "no-store" });
  } catch {
    return tell("The service does not answer. Try again.");
  }
  if (answer.headers.get("Content-Type").startsWith("text/html") || answer.ok) return answer;
  const problem = await answer.json().catch(() => ({ type: "", detail: `Status ${answer.status}` }));
  if (problem.type.endsWith("#token-wrong")) return refuse("This is not the token of an administrator. Nothing was stored.");
  return tell(`${problem.detail}.`);
}

function refuse(text) {
  tell(text);
  document.getElementById("wrong-token").textContent = text;
  token.setAttribute("aria-invalid", "true");
  token.focus();
}

function tell(text) {
  said.textContent = text;
}

function mark() {
  for (const wrong of form.querySelectorAll(".wrong")) {
    const field = document.getElementById(wrong.id.replace("wrong-", "in-"));
    if (!field) continue;
    if (wrong.textContent.trim()) field.setAttribute("aria-invalid", "true");
    else field.removeAttribute("aria-invalid");
    if (wrong.textContent.trim() && field.closest("details")) field.closest("details").open = true;
  }
}

async function preview() {
  tell("");
  const answer = await ask(form.action, { method: "POST", body: JSON.stringify(Object.fromEntries(new FormData(form))) });
  if (!answer) return;
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  for (const part of document.querySelectorAll("[data-part]")) {
    part.replaceWith(document.importNode(fresh.getElementById(part.id), true));
  }
  mark();
  (document.getElementById("shown") || document.getElementById("wrong")).focus();
}

async function publish(document_) {
  tell("Publishing …");
  const answer = await ask(form.dataset.tasks, { method: "POST", body: document_ });
  if (!answer) return;
  const { task } = await answer.json();
  const link = document.createElement("a");
  link.href = `${form.dataset.tasks.replace(/\/v1\/tasks$/, "")}/tasks/${task}`;
  link.textContent = "Open its page";
  const words = document.createElement("p");
  words.textContent = "The task is stored. Waiting for its aggregator …";
  said.replaceChildren(words, link);
  document.getElementById("publish").remove();
  link.focus();
  publisher(task).then((text) => (words.textContent = text));
}

async function publisher(task) {
  for (let look = 0; look < LOOKS; look++) {
    await new Promise((go) => setTimeout(go, LOOK_MS));
    const answer = await ask(`${form.dataset.tasks}/${task}`);
    const { owner } = answer ? await answer.json() : {};
    if (owner === "this store") return "Published. Devices can answer.";
    if (owner && owner !== "nobody yet") {
      return `Stored, and not published: the aggregator of another store (${owner}) publishes a task with this id.`;
    }
  }
  return "Stored, and not published yet. The aggregator of this store publishes it when it runs and is connected to its broker.";
}

let busy = false;

async function alone(work) {
  if (busy) return;
  busy = true;
  document.documentElement.classList.add("busy");
  try {
    await work();
  } finally {
    busy = false;
    document.documentElement.classList.remove("busy");
  }
}

if (form) {
  document.addEventListener("submit", (event) => {
    event.preventDefault();
    if (event.target === form) alone(preview);
    else alone(() => publish(event.target.elements.document.value));
  });
  // What was changed after a preview was not seen: it has to be previewed again.
  form.addEventListener("input", ({ target }) => {
    if (target === token) {
      token.removeAttribute("aria-invalid");
      document.getElementById("wrong-token").textContent = "";
    } else if (document.getElementById("publish")) {
      document.getElementById("preview").replaceChildren();
      tell("Changed: press Preview again.");
    }
  });
  addEventListener("pagehide", () => (token.value = ""));
}
