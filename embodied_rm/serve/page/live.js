import { $, add } from "./elements.js";

const REFRESH_MS = 1000;
const format = (value) => (value === null ? "–" : value.toFixed(2));

function showMessage(text) {
  $("message").hidden = !text;
  $("message").textContent = text;
}

async function fetchJson(path) {
  let response;
  try { response = await fetch(path); }
  catch { throw new Error("The service does not respond; the table is from its last response."); }
  const body = await response.json();
  if (!response.ok) throw new Error(body.error);
  return body;
}

function clientRow(client) {
  const row = document.createElement("tr");
  row.dataset.client = client.client_id;
  add(row, "td", "client", client.client_id).title = client.client_id;
  const numbers = [client.num_envs, client.max_step, format(client.mean_progress), format(client.mean_success), `${client.idle_s.toFixed(0)} s ago`];
  for (const text of numbers) add(row, "td", "number", text);
  const bars = add(add(row, "td"), "div", "bars");
  for (const env of client.envs) {
    const bar = add(bars, "span", env.success > 0.5 ? "bar done" : "bar");
    bar.title = `environment ${env.env_id}, episode ${env.episode_id}, step ${env.step}: progress ${format(env.progress)}, success ${format(env.success)}`;
    add(bar, "i").style.height = `${100 * (env.progress ?? 0)}%`;
  }
  const numHidden = client.num_envs - client.envs.length;
  if (numHidden) add(bars, "small", "", `and ${numHidden} more`);
  return row;
}

function render({ clients, num_omitted_clients }) {
  $("clients").tBodies[0].replaceChildren(...clients.map(clientRow));
  $("clients").hidden = clients.length === 0;
  $("empty").hidden = clients.length > 0;
  $("omitted").hidden = num_omitted_clients === 0;
  $("omitted").textContent = `and ${num_omitted_clients} more clients, with older requests`;
}

async function refresh() {
  try {
    if (!document.hidden) { render(await fetchJson("v1/sessions")); showMessage(""); }
  } catch (error) { showMessage(error.message); }
  setTimeout(refresh, REFRESH_MS);
}

refresh();
fetchJson("v1/metadata").then(({ name, versions }) => { $("model").textContent = `${name} ${versions[0].slice(0, 12)}`; }, () => {});
