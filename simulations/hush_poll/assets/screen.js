// The audience's screen: the figures are replaced once a second, if they are others.
const figures = document.getElementById("figures"), connection = document.getElementById("connection");
const { figures: address } = document.body.dataset;
let last = "", timer = null;

async function refresh() {
  clearTimeout(timer);
  try {
    const answer = await fetch(address, { cache: "no-store" });
    if (!answer.ok) throw new Error(answer.statusText);
    const text = await answer.text();
    if (text !== last) figures.innerHTML = text; // from the server of this page, which has escaped it
    last = text;
    connection.textContent = "";
  } catch {
    connection.textContent = "The poll has ended, or there is no connection.";
  }
  timer = setTimeout(refresh, 1000);
}

refresh();
