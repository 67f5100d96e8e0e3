import { $, add } from "./elements.js";

const EVERY = 1000;  // ms
const two = (value) => (value === null ? "–" : value.toFixed(2));

function say(text) {
  $("message").hidden = !text;
  $("message").textContent = text;
}

async function ask(path) {
  let response;
  try { response = await fetch(path); }
  catch { throw new Error("The service does not answer; what is shown is what it said last."); }
  const told = await response.json();
  if (!response.ok) throw new Error(told.error);
  return told;
}

function row(run) {
  const line = document.createElement("tr");
  line.dataset.run = run.run;
  add(line, "td", "who", run.run).title = run.run;
  for (const text of [run.environments, run.step, two(run.progress), two(run.success), `${run.idle_s.toFixed(0)} s ago`]) add(line, "td", "number", text);
  const bars = add(add(line, "td"), "div", "bars");
  for (const one of run.shown) {
    const bar = add(bars, "span", one.success > 0.5 ? "bar done" : "bar");
    bar.title = `environment ${one.env}, episode ${one.episode}, step ${one.step}: progress ${two(one.progress)}, success ${two(one.success)}`;
    add(bar, "i").style.height = `${100 * (one.progress ?? 0)}%`;
  }
  const more = run.environments - run.shown.length;
  if (more) add(bars, "small", "", `and ${more} more`);
  return line;
}

function render({ runs, unshown }) {
  $("runs").tBodies[0].replaceChildren(...runs.map(row));
  $("runs").hidden = runs.length === 0;
  $("empty").hidden = runs.length > 0;
  $("unshown").hidden = unshown === 0;
  $("unshown").textContent = `and ${unshown} runs more, asked about longer ago`;
}

async function refresh() {
  try {
    if (!document.hidden) { render(await ask("v1/sessions")); say(""); }
  } catch (error) { say(error.message); }
  setTimeout(refresh, EVERY);
}

refresh();
ask("v1/about").then(({ name, versions }) => { $("model").textContent = `${name} ${versions[0].slice(0, 12)}`; }, () => {});
