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
  line.dataset.client = run.client_id;
  add(line, "td", "who", run.client_id).title = run.client_id;
  for (const text of [run.num_envs, run.max_step, two(run.mean_progress), two(run.mean_success), `${run.idle_s.toFixed(0)} s ago`]) add(line, "td", "number", text);
  const bars = add(add(line, "td"), "div", "bars");
  for (const one of run.envs) {
    const bar = add(bars, "span", one.success > 0.5 ? "bar done" : "bar");
    bar.title = `environment ${one.env_id}, episode ${one.episode_id}, step ${one.step}: progress ${two(one.progress)}, success ${two(one.success)}`;
    add(bar, "i").style.height = `${100 * (one.progress ?? 0)}%`;
  }
  const more = run.num_envs - run.envs.length;
  if (more) add(bars, "small", "", `and ${more} more`);
  return line;
}

function render({ clients, num_omitted_clients }) {
  $("runs").tBodies[0].replaceChildren(...clients.map(row));
  $("runs").hidden = clients.length === 0;
  $("empty").hidden = clients.length > 0;
  $("unshown").hidden = num_omitted_clients === 0;
  $("unshown").textContent = `and ${num_omitted_clients} runs more, asked about longer ago`;
}

async function refresh() {
  try {
    if (!document.hidden) { render(await ask("v1/sessions")); say(""); }
  } catch (error) { say(error.message); }
  setTimeout(refresh, EVERY);
}

refresh();
ask("v1/metadata").then(({ name, versions }) => { $("model").textContent = `${name} ${versions[0].slice(0, 12)}`; }, () => {});
