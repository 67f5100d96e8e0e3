import { Chart } from "./chart.js";
import { append, curveFrom, digestOf, emptyCurve, indexAt, nameOf } from "./curve.js";
import { $, add } from "./elements.js";
import { Video, guess, momentsOf, sizeOf } from "./video.js";
import { about, known, post } from "./session.js";

const MOST = 4;                                 // videos
const APART = 0.08;                             // s by which videos that play together may differ
const PLAY = "▶", PAUSE = "❚❚";
const COLORS = ["--model", "#d9730d", "--done", "#9b51c9", "#c2417c", "#0f8b9d"];

let model = null;                               // what the service says of itself
let videos = [], kept = [], colored = 0;        // [{video, figure, view}], [{curve, color}]
let now = 0, playing = false, running = null;   // s; what stops the prediction under way
const chart = new Chart($("chart"));

function say(text) {
  $("message").hidden = !text;
  $("message").textContent = text;
}

// A task that may fail: its sentence is shown.
const attempt = async (task) => { try { return await task(); } catch (error) { say(error.message); } };

// ---- videos

async function take(files) {
  say("");
  for (const file of files) {
    if (videos.length >= MOST) return say(`At most ${MOST} videos, one a camera: ${file.name} was left out.`);
    const video = new Video(file);
    try { await video.open(); } catch (error) { video.close(); say(error.message); continue; }
    videos.push(shown(video));
    seek(0);
    render();
  }
}

function shown(video) {
  const figure = add($("videos"), "figure"), views = model?.parameters.views;
  figure.append(video.video);
  const view = add(figure, views ? "select" : "input", "view");
  if (views) view.append(...views.map((name) => new Option(name, name)));
  view.value = guess(video.name, views, videos.map((one) => one.view.value));
  view.setAttribute("aria-label", `view of ${video.name}`);
  const entry = { video, figure, view };
  add(figure, "figcaption", "", video.name).title = video.name;
  const remove = add(figure, "button", "remove", "×");
  remove.setAttribute("aria-label", `remove ${video.name}`);
  remove.onclick = () => {
    pause();
    video.close();
    figure.remove();
    videos = videos.filter((one) => one !== entry);
    render();
  };
  return entry;
}

// ---- judging

async function judge() {
  const shows = videos.map(({ video, view }) => ({ video, view: view.value }));
  const rate = +$("rate").value, instruction = $("instruction").value;
  if (!(rate > 0)) return say("frames a second: a number above 0 was expected");
  const twice = shows.find(({ view }, i) => shows.findIndex((one) => one.view === view) < i);
  if (twice) return say(`two videos show the view ${twice.view}: each view once was expected`);
  pause();
  say("");
  running = new AbortController();
  document.body.dataset.state = "judging";
  render();
  let end = "failed";
  try { await judged(shows, instruction, rate, running.signal); end = "done"; }
  catch (error) { if (error.name === "AbortError") end = "stopped"; else say(error.message); }
  running = null;
  $("state").textContent = end === "failed" ? "" : end;
  document.body.dataset.state = end;
  render();
}

async function judged(shows, instruction, rate, signal) {
  const taken = shows.map(({ video }) => video), views = shows.map(({ view }) => view);
  const moments = momentsOf(taken, rate), size = sizeOf(taken, model.parameters.image_size);
  const run = `page-${Array.from(crypto.getRandomValues(new Uint8Array(6)), (b) => b.toString(16).padStart(2, "0")).join("")}`;
  const episode = { client_id: run, env_ids: [0], episode_ids: [0] };
  const images = (k) => Promise.all(taken.map((video) => video.image(moments[k], size)));
  const waiting = (why) => { $("state").textContent = why; };
  let curve = null;
  try {
    let next = images(0);
    for (let k = 0; k < moments.length; k++) {
      const files = await next;
      const header = { ...episode, ...(k ? { steps: [k] } : { instructions: [instruction] }), views,
                       frames: { shape: [1, views.length], image_bytes: files.map((file) => file.size) } };
      const answer = post(k ? "v1/step" : "v1/reset", header, files, signal, waiting);
      // The next moment is decoded while this one is judged; a mistake of either is told where it is awaited.
      if (k + 1 < moments.length) (next = images(k + 1)).catch(() => {});
      const { told, columns } = await answer;
      curve ??= keep(emptyCurve({ name: model.name, version: told.model_version }, instruction, namesOf(shows), rate));
      append(curve, moments[k], columns, known);
      $("state").textContent = `${k + 1} of ${moments.length} frames`;
      look(moments[k]);
    }
  } finally {
    if (curve) await post("v1/end", episode, []).catch(() => {});  // else it is forgotten when nobody asks for long
  }
}

const namesOf = (shows) => Object.fromEntries(shows.map(({ view, video }) => [view, video.name]));

function keep(curve) {
  kept.push({ curve, color: COLORS[colored++ % COLORS.length] });
  render();
  return curve;
}

// ---- curves that are saved and loaded

function save(curve) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([JSON.stringify(curve)], { type: "application/json" }));
  link.download = nameOf(curve);
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

async function load(files) {
  say("");
  for (const file of files) await attempt(async () => keep(curveFrom(await file.text(), file.name)));
}

// ---- the moment that is looked at

const length = () => Math.max(0, ...videos.map(({ video }) => video.seconds));
const whole = () => Math.max(length(), ...kept.map(({ curve }) => curve.time_s.at(-1) ?? 0));

function look(seconds) {
  now = Math.min(Math.max(seconds, 0), whole());
  renderMoment();
}

function seek(seconds) {
  if (running) return;
  look(seconds);
  for (const { video } of videos) video.video.currentTime = Math.min(now + 0.001, video.seconds);
}

function play() {
  if (!videos.length || running) return;
  const longest = videos.map(({ video }) => video.video).reduce((a, b) => (b.duration > a.duration ? b : a));
  if (longest.ended || now >= longest.duration - 0.05) seek(0);
  playing = true;
  $("play").textContent = PAUSE;
  for (const { video } of videos) video.video.play().catch(() => {});  // it was paused before it had begun
  const tick = () => {
    if (!playing) return;
    look(longest.currentTime);
    for (const { video: { video } } of videos) {
      if (!video.ended && Math.abs(video.currentTime - longest.currentTime) > APART) video.currentTime = longest.currentTime;
    }
    if (longest.ended) pause(); else requestAnimationFrame(tick);
  };
  tick();
}

function pause() {
  playing = false;
  $("play").textContent = PLAY;
  for (const { video } of videos) video.video.pause();
}

// ---- what is seen

function render() {
  document.body.classList.toggle("judging", running !== null);
  $("judge").hidden = running !== null;
  $("stop").hidden = running === null;
  $("judge").disabled = !model || videos.length === 0;
  $("play").disabled = running !== null || videos.length === 0;
  for (const input of $("ask").querySelectorAll("input, select, .remove")) input.disabled = running !== null;
  $("videos").style.setProperty("--videos", Math.min(2, videos.length));
  $("empty").hidden = kept.length > 0;
  $("key").hidden = $("curves").hidden = kept.length === 0;
  $("curves").tBodies[0].replaceChildren(...kept.map(row));
  renderMoment();
}

function row(entry) {
  const { curve, color } = entry, line = document.createElement("tr");
  add(add(line, "td"), "span", "swatch").style.background = color.startsWith("--") ? `var(${color})` : color;
  const who = add(line, "td", "", `${curve.model.name} `);
  add(who, "code", "", digestOf(curve)).title = curve.model.version;
  const text = add(line, "td", "text", curve.instruction);
  text.title = Object.entries(curve.views ?? {}).map(([view, file]) => `${view}: ${file}`).join("\n");
  for (const name of ["progress", "success", "step"]) add(line, "td", `number ${name}`);
  const acts = add(line, "td", "acts");
  add(acts, "button", "save", "save").onclick = () => save(curve);
  const remove = add(acts, "button", "", "remove");
  remove.disabled = running !== null;
  remove.onclick = () => { kept = kept.filter((one) => one !== entry); render(); };
  return line;
}

function renderMoment() {
  chart.show(kept, length(), now);
  $("readout").textContent = kept.length || videos.length ? `${now.toFixed(2)} s` : "";
  $("chart").setAttribute("aria-valuenow", now.toFixed(2));
  $("chart").setAttribute("aria-valuemax", whole().toFixed(2));
  const two = (value) => (value === null || value === undefined ? "–" : value.toFixed(2));
  kept.forEach(({ curve }, i) => {
    const line = $("curves").tBodies[0].rows[i], at = indexAt(curve, now), stage = curve.subtask[at];
    line.querySelector(".progress").textContent = two(curve.progress[at]) + (curve.valid[at] === false ? " (not judged)" : "");
    line.querySelector(".success").textContent = two(curve.success[at]);
    line.querySelector(".step").textContent = stage >= 0 ? stage + 1 : "–";
  });
}

// ---- hands

const turn = (event) => { pause(); seek(chart.moment(event)); };
$("chart").onpointerdown = (event) => { if (event.button === 0) { $("chart").setPointerCapture(event.pointerId); turn(event); } };
$("chart").onpointermove = (event) => { if ($("chart").hasPointerCapture(event.pointerId)) turn(event); };

document.addEventListener("keydown", (event) => {
  if (event.target.matches("input, select, button, a, label") || event.ctrlKey || event.metaKey || event.altKey) return;
  const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (step) { pause(); seek(now + step / (+$("rate").value || 1)); }
  else if (event.key === " ") { if (playing) pause(); else play(); }
  else return;
  event.preventDefault();
});

for (const event of ["dragover", "dragenter"]) addEventListener(event, (e) => { e.preventDefault(); $("drop").classList.add("over"); });
for (const event of ["dragleave", "drop"]) addEventListener(event, () => $("drop").classList.remove("over"));
addEventListener("drop", (event) => {
  event.preventDefault();
  if (running) return;
  const files = [...event.dataTransfer.files], saved = (file) => file.name.endsWith(".json");
  attempt(async () => { await take(files.filter((file) => !saved(file))); await load(files.filter(saved)); });
});
const chosen = (input, then) => { input.onchange = () => attempt(async () => { await then([...input.files]); input.value = ""; }); };
chosen($("files"), take);
chosen($("saved"), load);
$("load").onclick = () => $("saved").click();
$("judge").onclick = judge;
$("stop").onclick = () => running?.abort();
$("play").onclick = () => { if (playing) pause(); else play(); };
$("instruction").onkeydown = (event) => { if (event.key === "Enter" && !$("judge").disabled) judge(); };

attempt(async () => {
  model = await about();
  const { views } = model.parameters;
  $("model").textContent = `${model.name} ${model.versions[0].slice(0, 12)} · views: ${views ? views.join(", ") : "any"}`;
  document.body.classList.add("ready");
  render();
});
