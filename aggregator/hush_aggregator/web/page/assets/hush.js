// Keeps the page up to date. Without this file the page is complete, and has a link to load it again.
// The script never writes figures: it fetches the same page and replaces what differs, so that the focus, the scroll
// position and open details stay as they are.

const state = document.getElementById("live");
const still = document.getElementById("still");
const EVERY_MS = 1500; // at most one fetch in this time
const SPREAD_MS = 1000; // so that the pages of many people are not fetched at once
const AGAIN_MS = 15000; // a refused stream is opened again after this time, or up to twice that
const SEARCH_MS = 150; // after the last key
const SAID_MS = 30000; // screen readers announce at most once in this time

let due = false, hurry = false, busy = false, last = 0, said = 0, standing = "";

function trouble(text) {
  said = 0;
  state.textContent = text;
  state.className = "off";
  still.hidden = false;
}

// The badge has the status of the task: a closed task is not live.
function announce() {
  const badge = document.querySelector(".hero .badge");
  const before = standing;
  standing = badge ? badge.textContent : "Live";
  state.className = standing === "Live" ? "on" : "";
  still.hidden = true;
  if (standing === before && Date.now() - said < SAID_MS) return;
  said = Date.now();
  const reports = document.querySelector(".hero .from [data-figure='n']");
  const counted = reports && `${reports.textContent} ${reports.getAttribute("value") === "1" ? "report" : "reports"}`;
  const words = counted ? `${standing}: ${counted}` : standing;
  if (state.textContent !== words) state.textContent = words;
}

// A search shows what it finds while somebody types or chooses, by the address that the form has.
let typed;

document.addEventListener("input", ({ target }) => {
  if (!target.form || target.form.id !== "find") return;
  clearTimeout(typed);
  typed = setTimeout(() => {
    const place = new URL(target.form.action);
    for (const [name, value] of new FormData(target.form)) if (value) place.searchParams.set(name, value);
    history.replaceState(null, "", place);
    hurry = true;
    changed();
  }, SEARCH_MS);
});

// The address of the page goes to another program, or to the clipboard. Browsers allow either only over TLS.
if (navigator.share || navigator.clipboard) document.documentElement.classList.add("shares");

document.addEventListener("click", async ({ target }) => {
  if (!target.classList.contains("share")) return;
  const url = location.href.replace(/#.*/, "");
  try {
    if (navigator.share) await navigator.share({ title: document.title, url });
    else {
      await navigator.clipboard.writeText(url);
      state.textContent = "The link is copied.";
    }
  } catch (error) {
    if (error.name !== "AbortError") state.textContent = "The browser does not allow that; copy the address.";
  }
});

function alike(a, b) {
  return a.nodeType === b.nodeType && a.nodeName === b.nodeName && (a.id || "") === (b.id || "");
}

function patch(old, fresh) {
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && name !== "open" && name !== "class") old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (name !== "open" && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  if (old.nodeName === "DATA" && old.textContent !== fresh.textContent) {
    old.classList.remove("fresh");
    requestAnimationFrame(() => old.classList.add("fresh"));
  }
  children(old, fresh);
}

function children(old, fresh) {
  const wanted = [...fresh.childNodes];
  for (let place = 0; place < wanted.length; place++) {
    const there = old.childNodes[place];
    if (there && alike(there, wanted[place])) {
      patch(there, wanted[place]);
      continue;
    }
    const later = wanted[place].id && [...old.childNodes].slice(place).find((one) => alike(one, wanted[place]));
    if (later) {
      while (old.childNodes[place] !== later) old.childNodes[place].remove(); // moving it would lose the focus
      patch(later, wanted[place]);
    } else {
      old.insertBefore(document.importNode(wanted[place], true), there || null);
    }
  }
  while (old.childNodes.length > wanted.length) old.lastChild.remove();
}

async function refresh() {
  if (busy) return;
  busy = true;
  try {
    const soonest = Math.max(last + EVERY_MS, Date.now() + SPREAD_MS * Math.random());
    while (!hurry && Date.now() < soonest) await new Promise((go) => setTimeout(go, 50));
    due = hurry = false;
    last = Date.now();
    const answer = await fetch(location.href, { cache: "no-cache", credentials: "same-origin" });
    if (!answer.ok && answer.status !== 404) throw new Error(answer.status); // 404: the task is gone, and its page says so
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    patch(document.getElementById("main"), fresh.getElementById("main"));
    const again = fresh.getElementById("still");
    if (again) children(still, again);
    document.title = fresh.title;
    document.documentElement.dataset.seen = String(Number(document.documentElement.dataset.seen || 0) + 1);
    announce();
  } catch {
    trouble("Figures may be old: the service does not answer.");
  } finally {
    busy = false;
    if (due) refresh();
  }
}

function shows(task) {
  const here = document.querySelector("[data-task]");
  return here ? here.dataset.task === task : true;
}

function changed(task) {
  if (task && !shows(task)) return;
  due = true;
  refresh();
}

let stream;

function listen() {
  stream = new EventSource(document.body.dataset.events);
  stream.onopen = announce;
  stream.onerror = () => {
    trouble("Figures may be old: the connection is lost. Trying again.");
    if (stream.readyState === EventSource.CLOSED) setTimeout(again, AGAIN_MS * (1 + Math.random()));
  };
  stream.addEventListener("state", () => changed());
  for (const name of ["result", "removed"]) {
    stream.addEventListener(name, (event) => changed(JSON.parse(event.data).task));
  }
}

function again() {
  if (!document.hidden && stream.readyState === EventSource.CLOSED) listen();
}

// A hidden page closes its stream: a browser has six connections for a service.
document.addEventListener("visibilitychange", () => (document.hidden ? stream.close() : again()));
listen();
