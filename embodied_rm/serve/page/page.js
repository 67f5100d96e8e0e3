import { Chart } from "./chart.js";
import { append, emptyCurve, fileName, indexAt, parseCurve, shortVersion } from "./curve.js";
import { $, add } from "./elements.js";
import { Video, frameTimes, guessView, imageSize } from "./video.js";
import { fetchMetadata, knownValue, post } from "./session.js";

const MAX_VIDEOS = 4;
const MAX_DRIFT = 0.08;                         // s by which videos may differ during playback
const PLAY = "▶", PAUSE = "❚❚";
const COLORS = ["--model", "#d9730d", "--done", "#9b51c9", "#c2417c", "#0f8b9d"];

let model = null;                               // metadata from the service
let videos = [], entries = [], numColors = 0;   // [{video, figure, view}], [{curve, color}]
let now = 0, playing = false, running = null;   // s; controller that aborts scoring
const chart = new Chart($("chart"));

function showMessage(text) {
  $("message").hidden = !text;
  $("message").textContent = text;
}

// Show the message of an error that `task` throws.
const attempt = async (task) => { try { return await task(); } catch (error) { showMessage(error.message); } };

// ---- videos

async function addVideos(files) {
  showMessage("");
  for (const file of files) {
    if (videos.length >= MAX_VIDEOS) return showMessage(`At most ${MAX_VIDEOS} videos, one per camera: ${file.name} was left out.`);
    const video = new Video(file);
    try { await video.open(); } catch (error) { video.close(); showMessage(error.message); continue; }
    videos.push(addFigure(video));
    seek(0);
    render();
  }
}

function addFigure(video) {
  const figure = add($("videos"), "figure"), views = model?.parameters.views;
  figure.append(video.video);
  const view = add(figure, views ? "select" : "input", "view");
  if (views) view.append(...views.map((name) => new Option(name, name)));
  view.value = guessView(video.name, views, videos.map((entry) => entry.view.value));
  view.setAttribute("aria-label", `view of ${video.name}`);
  const entry = { video, figure, view };
  add(figure, "figcaption", "", video.name).title = video.name;
  const remove = add(figure, "button", "remove", "×");
  remove.setAttribute("aria-label", `remove ${video.name}`);
  remove.onclick = () => {
    pause();
    video.close();
    figure.remove();
    videos = videos.filter((other) => other !== entry);
    render();
  };
  return entry;
}

// ---- scoring

async function score() {
  const inputs = videos.map(({ video, view }) => ({ video, view: view.value }));
  const fps = +$("fps").value, instruction = $("instruction").value;
  if (!(fps > 0)) return showMessage("frames per second: expected a number above 0");
  const duplicate = inputs.find(({ view }, i) => inputs.findIndex((other) => other.view === view) < i);
  if (duplicate) return showMessage(`two videos have the view ${duplicate.view}: expected each view once`);
  pause();
  showMessage("");
  running = new AbortController();
  document.body.dataset.state = "scoring";
  render();
  let result = "failed";
  try { await scoreVideos(inputs, instruction, fps, running.signal); result = "done"; }
  catch (error) { if (error.name === "AbortError") result = "stopped"; else showMessage(error.message); }
  running = null;
  $("state").textContent = result === "failed" ? "" : result;
  document.body.dataset.state = result;
  render();
}

async function scoreVideos(inputs, instruction, fps, signal) {
  const clips = inputs.map(({ video }) => video), views = inputs.map(({ view }) => view);
  const times = frameTimes(clips, fps), size = imageSize(clips, model.parameters.image_size);
  const clientId = `page-${Array.from(crypto.getRandomValues(new Uint8Array(6)), (b) => b.toString(16).padStart(2, "0")).join("")}`;
  const episode = { client_id: clientId, env_ids: [0], episode_ids: [0] };
  const images = (k) => Promise.all(clips.map((video) => video.image(times[k], size)));
  const onRetry = (reason) => { $("state").textContent = reason; };
  let curve = null;
  try {
    let next = images(0);
    for (let k = 0; k < times.length; k++) {
      const files = await next;
      const header = { ...episode, ...(k ? { steps: [k] } : { instructions: [instruction] }), views,
                       frames: { shape: [1, views.length], image_bytes: files.map((file) => file.size) } };
      const request = post(k ? "v1/step" : "v1/reset", header, files, signal, onRetry);
      // Decode the next frame during inference; its error is reported where it is awaited.
      if (k + 1 < times.length) (next = images(k + 1)).catch(() => {});
      const { metadata, columns } = await request;
      curve ??= addCurve(emptyCurve({ name: model.name, version: metadata.model_version }, instruction, fileNames(inputs), fps));
      append(curve, times[k], columns, knownValue);
      $("state").textContent = `${k + 1} of ${times.length} frames`;
      setTime(times[k]);
    }
  } finally {
    if (curve) await post("v1/end", episode, []).catch(() => {});  // otherwise the idle timeout ends the episode
  }
}

const fileNames = (inputs) => Object.fromEntries(inputs.map(({ view, video }) => [view, video.name]));

function addCurve(curve) {
  entries.push({ curve, color: COLORS[numColors++ % COLORS.length] });
  render();
  return curve;
}

// ---- saved curves

function save(curve) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([JSON.stringify(curve)], { type: "application/json" }));
  link.download = fileName(curve);
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

async function load(files) {
  showMessage("");
  for (const file of files) await attempt(async () => addCurve(parseCurve(await file.text(), file.name)));
}

// ---- playback

const videoSeconds = () => Math.max(0, ...videos.map(({ video }) => video.seconds));
const totalSeconds = () => Math.max(videoSeconds(), ...entries.map(({ curve }) => curve.time_s.at(-1) ?? 0));

function setTime(seconds) {
  now = Math.min(Math.max(seconds, 0), totalSeconds());
  renderTime();
}

function seek(seconds) {
  if (running) return;
  setTime(seconds);
  for (const { video } of videos) video.video.currentTime = Math.min(now + 0.001, video.seconds);
}

function play() {
  if (!videos.length || running) return;
  const longest = videos.map(({ video }) => video.video).reduce((a, b) => (b.duration > a.duration ? b : a));
  if (longest.ended || now >= longest.duration - 0.05) seek(0);
  playing = true;
  $("play").textContent = PAUSE;
  for (const { video } of videos) video.video.play().catch(() => {});  // rejects if paused before it starts
  const tick = () => {
    if (!playing) return;
    setTime(longest.currentTime);
    for (const { video: { video } } of videos) {
      if (!video.ended && Math.abs(video.currentTime - longest.currentTime) > MAX_DRIFT) video.currentTime = longest.currentTime;
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

// ---- rendering

function render() {
  document.body.classList.toggle("scoring", running !== null);
  $("score").hidden = running !== null;
  $("stop").hidden = running === null;
  $("score").disabled = !model || videos.length === 0;
  $("play").disabled = running !== null || videos.length === 0;
  for (const input of $("inputs").querySelectorAll("input, select, .remove")) input.disabled = running !== null;
  $("videos").style.setProperty("--videos", Math.min(2, videos.length));
  $("empty").hidden = entries.length > 0;
  $("legend").hidden = $("curves").hidden = entries.length === 0;
  $("curves").tBodies[0].replaceChildren(...entries.map(curveRow));
  renderTime();
}

function curveRow(entry) {
  const { curve, color } = entry, row = document.createElement("tr");
  add(add(row, "td"), "span", "swatch").style.background = color.startsWith("--") ? `var(${color})` : color;
  const name = add(row, "td", "", `${curve.model.name} `);
  add(name, "code", "", shortVersion(curve)).title = curve.model.version;
  const text = add(row, "td", "text", curve.instruction);
  text.title = Object.entries(curve.views ?? {}).map(([view, file]) => `${view}: ${file}`).join("\n");
  for (const column of ["progress", "success", "subtask"]) add(row, "td", `number ${column}`);
  const actions = add(row, "td", "actions");
  add(actions, "button", "save", "save").onclick = () => save(curve);
  const remove = add(actions, "button", "", "remove");
  remove.disabled = running !== null;
  remove.onclick = () => { entries = entries.filter((other) => other !== entry); render(); };
  return row;
}

function renderTime() {
  chart.show(entries, videoSeconds(), now);
  $("readout").textContent = entries.length || videos.length ? `${now.toFixed(2)} s` : "";
  $("chart").setAttribute("aria-valuenow", now.toFixed(2));
  $("chart").setAttribute("aria-valuemax", totalSeconds().toFixed(2));
  const format = (value) => (value === null || value === undefined ? "–" : value.toFixed(2));
  entries.forEach(({ curve }, i) => {
    const row = $("curves").tBodies[0].rows[i], index = indexAt(curve, now), subtask = curve.subtask[index];
    row.querySelector(".progress").textContent = format(curve.progress[index]) + (curve.valid[index] === false ? " (invalid)" : "");
    row.querySelector(".success").textContent = format(curve.success[index]);
    row.querySelector(".subtask").textContent = subtask >= 0 ? subtask + 1 : "–";
  });
}

// ---- mouse, keyboard and files

const seekTo = (event) => { pause(); seek(chart.timeAt(event)); };
$("chart").onpointerdown = (event) => { if (event.button === 0) { $("chart").setPointerCapture(event.pointerId); seekTo(event); } };
$("chart").onpointermove = (event) => { if ($("chart").hasPointerCapture(event.pointerId)) seekTo(event); };

document.addEventListener("keydown", (event) => {
  if (event.target.matches("input, select, button, a, label") || event.ctrlKey || event.metaKey || event.altKey) return;
  const direction = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (direction) { pause(); seek(now + direction / (+$("fps").value || 1)); }
  else if (event.key === " ") { if (playing) pause(); else play(); }
  else return;
  event.preventDefault();
});

for (const event of ["dragover", "dragenter"]) addEventListener(event, (e) => { e.preventDefault(); $("drop").classList.add("over"); });
for (const event of ["dragleave", "drop"]) addEventListener(event, () => $("drop").classList.remove("over"));
addEventListener("drop", (event) => {
  event.preventDefault();
  if (running) return;
  const files = [...event.dataTransfer.files], isCurve = (file) => file.name.endsWith(".json");
  attempt(async () => { await addVideos(files.filter((file) => !isCurve(file))); await load(files.filter(isCurve)); });
});
const onFiles = (input, handler) => { input.onchange = () => attempt(async () => { await handler([...input.files]); input.value = ""; }); };
onFiles($("files"), addVideos);
onFiles($("saved"), load);
$("load").onclick = () => $("saved").click();
$("score").onclick = score;
$("stop").onclick = () => running?.abort();
$("play").onclick = () => { if (playing) pause(); else play(); };
$("instruction").onkeydown = (event) => { if (event.key === "Enter" && !$("score").disabled) score(); };

attempt(async () => {
  model = await fetchMetadata();
  const { views } = model.parameters;
  $("model").textContent = `${model.name} ${model.versions[0].slice(0, 12)} · views: ${views ? views.join(", ") : "any"}`;
  document.body.classList.add("ready");
  render();
});
