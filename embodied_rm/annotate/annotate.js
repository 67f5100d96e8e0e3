import { $, add } from "./elements.js";
import { Video } from "./video.js";
import { boundaries, clamp, endOf, merged, moved, same, split, startOf, stepAt, without } from "./steps.js";

const FAR = 10;  // frames of a long step
const PLAY = "▶", PAUSE = "❚❚";
const tone = (i) => `hsl(${(214 + 137.5 * i) % 360} 62% var(--tone))`;

let data, at = -1;                              // the dataset, the episode
let version = "", stored = "";                  // what the server has
let steps = [], success = null;                 // what is on the page
let proposal = false;                           // whether its steps are a proposal that nobody has touched
let past = [], future = [];                     // what undo and redo go to
let video = null, playing = null, drag = null, zoom = 1, saving = false;

const episode = () => data.episodes[at];
const length = () => episode().length;
const now = () => JSON.stringify({ steps: steps.map(({ name, start, end }) => ({ name, start, end })), success });
const dirty = () => at >= 0 && !proposal && now() !== stored;
const counted = (n, what) => `${n} ${what}${n === 1 ? "" : "s"}`;

// ---- the server

async function ask(path, options = {}) {
  let response;
  try { response = await fetch(path, options); }
  catch { throw new Error("the server does not answer: is embodied-rm annotate still running?"); }
  const told = await response.json();
  if (response.ok) return { ...told, version: response.headers.get("ETag") };
  throw Object.assign(new Error(told.error), { status: response.status });
}

function say(text, remedy, act) {
  $("message").hidden = !text;
  $("message").textContent = text;
  if (remedy) add($("message"), "button", "", remedy).onclick = act;
}

// A task that the server may refuse: its sentence is shown.
const attempt = async (task) => { try { return await task(); } catch (error) { say(error.message); } };

async function load(i) {
  if (video) pause();
  const told = await ask(`episodes/${i}`);
  at = i;
  location.replace(`#${i}`);
  ({ version, steps, success } = told);
  stored = now();
  [past, future, proposal, zoom] = [[], [], false, 1];
  say("");
  startVideo();
  render();
  seek(0);
  if (steps.length === 0) await attempt(propose);
}

async function propose() {
  const i = at, untouched = past.length === 0 && steps.length === 0;
  $("propose").disabled = true;
  if (untouched) say("Looking for steps …");
  try {
    const told = await ask(`episodes/${i}/proposal`);
    if (at !== i) return;
    if (untouched && past.length === 0) [steps, proposal] = [told.steps, true];
    else if (!untouched) edit(() => { steps = told.steps; });
    say("");
    render();
  } finally { $("propose").disabled = false; }
}

async function save() {
  if (saving || (!dirty() && !proposal)) return !dirty();
  saving = true;
  const i = at, sent = now();
  renderState();
  try {
    const headers = { "Content-Type": "application/json", "If-Match": version };
    const told = await ask(`episodes/${i}`, { method: "PUT", headers, body: sent });
    Object.assign(data.episodes[i], { steps: told.steps.map((s) => s.name), success: told.success });
    if (at === i) {  // and not another one by now
      [stored, version] = [JSON.stringify({ steps: told.steps, success: told.success }), told.version];
      if (now() === stored) proposal = false;
      say("");
    }
  } catch (error) {
    const outdated = error.status === 412;
    say(`Not saved. ${error.message}`, outdated && "load what is stored, drop my changes", () => attempt(() => load(at)));
  } finally { saving = false; }
  render();
  return !dirty();
}

async function go(i) {
  if (i === at || i < 0 || i >= data.episodes.length) return;
  if (dirty()) {
    $("left").textContent = episode().name;
    $("leave").returnValue = "stay";
    $("leave").showModal();
    await new Promise((resolve) => $("leave").addEventListener("close", resolve, { once: true }));
    const choice = $("leave").returnValue;
    if (choice === "save" ? !(await save()) : choice !== "discard") return;
  }
  await attempt(() => load(i));
}

// ---- the video

const shown = () => video.shown;

function seek(frame) {
  video.seek(clamp(frame, 0, length() - 1));
  renderCursor();
}

async function explain(frame) {
  pause();
  say(`Frame ${frame} cannot be shown.`);
  for (const view of data.views.keys()) {
    const response = await fetch(`frames/${at}/${view}/${frame}`);
    if (!response.ok) return say((await response.json()).error);
  }
}

function play() {
  const from = video.shown >= length() - 1 ? 0 : Math.max(video.shown, 0), since = performance.now();
  const mine = playing = {};
  $("play").textContent = PAUSE;
  const tick = () => {
    if (playing !== mine) return;
    const due = from + Math.floor((performance.now() - since) / 1000 * episode().fps * $("speed").value);
    seek(due);
    if (due < length() - 1) requestAnimationFrame(tick); else stop();
  };
  tick();
}

function stop() {
  playing = null;
  $("play").textContent = PLAY;
}

// Where the video has come to, it stays; where it was led to since, it goes.
function pause() {
  if (playing) seek(video.shown);
  stop();
}

// ---- changes

const snapshot = () => ({ steps, success, proposal });

function edit(change) {
  past.push(snapshot());
  future = [];
  proposal = false;
  change();
  render();
}

const replace = (next) => { if (!same(next, steps)) edit(() => { steps = next; }); };
const mark = (value) => { if (value !== success) edit(() => { success = value; }); };

function undo(from, to) {
  if (from.length === 0) return;
  to.push(snapshot());
  ({ steps, success, proposal } = from.pop());
  render();
}

const freshName = () => data.names.find((name) => !steps.some((s) => s.name === name)) ?? `step ${steps.length + 1}`;
const move = (boundary, to, alone) => replace(moved(steps, boundary, to, length(), alone));

function beginHere() {
  const i = steps.findIndex((s) => shown() < s.end);  // in a gap: the step behind it
  if (i >= 0) move(startOf(steps, i), shown());
}

function endHere() {
  const i = steps.findLastIndex((s) => s.start <= shown());
  if (i >= 0) move(endOf(steps, i), shown() + 1);
}

function toBoundary(direction) {
  const frames = boundaries(steps).map((b) => Math.min(b.frame, length() - 1));
  const next = direction > 0 ? frames.find((f) => f > shown()) : frames.findLast((f) => f < shown());
  seek(next ?? (direction > 0 ? length() - 1 : 0));
}

// ---- what is seen

function startVideo() {
  if (video) video.closed = true;
  $("views").replaceChildren();
  $("views").style.setProperty("--views", Math.min(data.views.length, 4));
  for (const view of data.views) {
    const figure = add($("views"), "figure");
    add(figure, "canvas");
    add(figure, "figcaption", "", view);
  }
  video = new Video(at, length(), [...$("views").querySelectorAll("canvas")], renderReadout, explain);
}

function render() {
  renderList();
  $("name").textContent = episode().name;
  $("instruction").textContent = episode().instruction;
  for (const button of $("success").querySelectorAll("button")) button.setAttribute("aria-pressed", button.dataset.success === String(success));
  $("undo").disabled = past.length === 0;
  $("redo").disabled = future.length === 0;
  $("clear").disabled = steps.length === 0;
  $("names").replaceChildren(...[...new Set([...data.names, ...data.episodes.flatMap((e) => e.steps)])].map((name) => new Option(name, name)));
  renderEdits();
}

// What changes while a boundary is dragged.
function renderEdits() {
  const focus = document.activeElement?.dataset.key;
  renderState();
  renderTimeline();
  renderSteps();
  renderCursor();
  renderReadout();
  if (focus) document.querySelector(`[data-key="${focus}"]`)?.focus();
}

function renderState() {
  const [kind, text] = saving ? ["", "saving …"] : proposal ? ["open", "proposed, not saved"]
    : dirty() ? ["open", "not saved"] : ["saved", steps.length || success !== null ? "saved" : "nothing to save"];
  $("state").textContent = text;
  $("state").className = kind;
  $("save").disabled = kind !== "open";
  document.title = `${dirty() ? "• " : ""}${at < 0 ? "Annotate" : episode().name}`;
}

function renderList() {
  const only = $("filter").querySelector('[aria-pressed="true"]').dataset.only;
  $("count").textContent = `${data.episodes.filter((e) => e.steps.length).length} of ${data.episodes.length} with steps`;
  $("episodes").replaceChildren();
  data.episodes.forEach((e, i) => {
    if (only === "todo" && e.steps.length && i !== at) return;
    const button = add(add($("episodes"), "li"), "button", e.steps.length ? "done" : "");
    button.setAttribute("aria-current", i === at);
    add(button, "span", "mark", e.steps.length ? "✓" : "○");
    add(button, "span", "who", e.name + (i === at && dirty() ? " •" : ""));
    if (e.success !== null) add(button, "span", `chip ${e.success ? "good" : "poor"}`, e.success ? "success" : "failure");
    add(button, "small", "number", `${e.steps.length ? counted(e.steps.length, "step") : "no steps"}, ${counted(e.length, "frame")}`);
    button.onclick = () => go(i);
  });
}

function renderTimeline() {
  const box = $("timeline"), part = (frames) => `${100 * frames / length()}%`;
  box.replaceChildren();
  box.classList.toggle("proposal", proposal);
  box.style.width = `${100 * zoom}%`;
  steps.forEach((s, i) => {
    const bar = add(box, "div", "bar", s.name);
    [bar.style.left, bar.style.width, bar.style.backgroundColor] = [part(s.start), part(s.end - s.start), tone(i)];
    bar.title = `${s.name}: frames ${s.start} to ${s.end - 1}`;
  });
  boundaries(steps).forEach((b, k) => {
    const edge = add(box, "div", "edge");
    edge.style.left = part(b.frame);
    Object.assign(edge, { tabIndex: 0, role: "slider", title: `boundary at frame ${b.frame}` });
    Object.assign(edge.dataset, { boundary: k, key: `boundary ${k}` });
    const told = { label: [steps[b.left]?.name, steps[b.right]?.name].filter(Boolean).join(" | "), valuemin: 0, valuemax: length(), valuenow: b.frame };
    for (const [name, value] of Object.entries(told)) edge.setAttribute(`aria-${name}`, value);
  });
  const seconds = length() / episode().fps, least = seconds / (9 * zoom);
  const power = 10 ** Math.floor(Math.log10(least)), tick = [1, 2, 5, 10].map((m) => m * power).find((m) => m >= least);
  for (let k = 0; k * tick <= seconds; k++) {
    const mark = add(box, "span", "tick number", `${+(k * tick).toFixed(3)} s`);
    mark.style.left = `${100 * k * tick / seconds}%`;
  }
  add(box, "div", "cursor");
}

function renderSteps() {
  const body = $("steps").tBodies[0];
  body.replaceChildren();
  steps.forEach((s, i) => {
    const row = add(body, "tr");
    add(add(row, "td"), "span", "swatch").style.background = tone(i);
    const name = add(add(row, "td"), "input");
    Object.assign(name, { value: s.name, placeholder: "name of the step", spellcheck: true });
    name.setAttribute("list", "names");
    name.setAttribute("aria-label", `name of step ${i + 1}`);
    name.dataset.key = `name ${i}`;
    let before = snapshot();
    name.oninput = () => {
      if (before) { past.push(before); before = null; [future, proposal] = [[], false]; }
      steps = steps.with(i, { ...steps[i], name: name.value });
      renderTimeline(); renderCursor(); renderState(); renderReadout(); renderList();
      $("undo").disabled = false;
    };
    for (const [key, found] of [["start", startOf], ["end", endOf]]) {
      const input = add(add(row, "td"), "input", "number");
      Object.assign(input, { type: "number", value: s[key], min: 0, max: length(), title: key === "end" ? "the first frame behind the step" : "its first frame" });
      input.setAttribute("aria-label", `${key} of step ${i + 1}`);
      input.dataset.key = `${key} ${i}`;
      input.onchange = () => { if (input.value !== "") move(found(steps, i), Math.round(+input.value)); render(); };
    }
    add(row, "td", "number soft", `${s.end - s.start} · ${((s.end - s.start) / episode().fps).toFixed(1)} s`);
    const acts = add(row, "td", "acts");
    const go = add(acts, "button", "", "show");
    go.onclick = () => { pause(); seek(s.start); };
    const up = add(acts, "button", "", "merge up");
    up.disabled = i === 0 || steps[i - 1].end !== s.start;
    up.onclick = () => replace(merged(steps, i));
    add(acts, "button", "", "remove").onclick = () => replace(without(steps, i));
  });
}

function renderCursor() {
  const cursor = $("timeline").lastChild, strip = $("window");
  if (!cursor) return;
  const { wanted } = video;
  $("views").classList.toggle("waiting", wanted !== video.shown);
  cursor.style.left = `${100 * wanted / length()}%`;
  cursor.style.width = `max(2px, ${100 / length()}%)`;
  const x = wanted / length() * strip.scrollWidth;
  if (zoom > 1 && (x < strip.scrollLeft + 20 || x > strip.scrollLeft + strip.clientWidth - 20)) strip.scrollLeft = x - strip.clientWidth / 2;
}

function renderReadout() {
  const frame = Math.max(shown(), 0), i = stepAt(steps, frame);
  $("readout").replaceChildren();
  add($("readout"), "b", "", `frame ${frame}`);
  add($("readout"), "span", "soft", ` of ${length()} · ${(frame / episode().fps).toFixed(2)} s · `);
  const step = add($("readout"), "span", "", i < 0 ? "no step" : steps[i].name);
  if (i >= 0) step.style.setProperty("--dot", tone(i));
  step.className = i < 0 ? "soft" : "step";
  [...$("steps").tBodies[0].rows].forEach((row, k) => row.classList.toggle("current", k === i));
  [...$("timeline").querySelectorAll(".bar")].forEach((bar, k) => bar.classList.toggle("current", k === i));
  $("views").classList.toggle("waiting", video.wanted !== video.shown);
  document.body.dataset.frame = shown();
}

function zoomBy(factor) {
  zoom = clamp(zoom * factor, 1, Math.max(1, length() / 30));
  renderTimeline();
  renderCursor();
  renderReadout();
  $("window").scrollLeft = video.wanted / length() * $("window").scrollWidth - $("window").clientWidth / 2;
}

// ---- hands

const pointed = (event) => {
  const box = $("timeline").getBoundingClientRect();
  return (event.clientX - box.left) / box.width * length();
};

$("timeline").onpointerdown = (event) => {
  if (event.button !== 0) return;
  pause();
  $("timeline").setPointerCapture(event.pointerId);
  const edge = event.target.closest(".edge");
  if (edge) {
    event.preventDefault();
    edge.focus();
    const boundary = boundaries(steps)[edge.dataset.boundary];
    drag = { boundary, before: snapshot(), off: boundary.frame - pointed(event) };
  } else { drag = {}; seek(Math.floor(pointed(event))); }
};
$("timeline").onpointermove = (event) => {
  if (!drag) return;
  if (!drag.boundary) return void seek(Math.floor(pointed(event)));
  const to = Math.round(pointed(event) + drag.off);
  steps = moved(drag.before.steps, drag.boundary, to, length(), event.altKey);
  proposal = drag.before.proposal && same(steps, drag.before.steps);
  const { left, right } = drag.boundary;
  // What is shown is the first frame behind the boundary, or the last one of a step that nothing follows.
  const moves = right >= 0 && steps[right].start !== drag.before.steps[right].start;
  seek(moves || left < 0 ? steps[right].start : right >= 0 ? steps[left].end : steps[left].end - 1);
  renderEdits();
};
$("timeline").onpointerup = $("timeline").onpointercancel = () => {
  const before = drag?.before;
  drag = null;
  if (!before || same(steps, before.steps)) return;
  past.push(before);
  future = [];
  render();
};
$("timeline").ondblclick = () => nameStep();
$("window").addEventListener("wheel", (event) => {
  if (!event.ctrlKey) return;
  event.preventDefault();
  zoomBy(event.deltaY < 0 ? 1.25 : 0.8);
}, { passive: false });

function nameStep() {
  const input = document.querySelector(`[data-key="name ${stepAt(steps, shown())}"]`);
  input?.focus();
  input?.select();
}

const KEYS = {
  " ": () => (playing ? pause() : play()),
  ArrowLeft: (far) => { pause(); seek(video.wanted - (far ? FAR : 1)); },
  ArrowRight: (far) => { pause(); seek(video.wanted + (far ? FAR : 1)); },
  ArrowUp: () => { pause(); toBoundary(-1); },
  ArrowDown: () => { pause(); toBoundary(1); },
  Home: () => { pause(); seek(0); },
  End: () => { pause(); seek(length() - 1); },
  PageUp: () => go(at - 1),
  PageDown: () => go(at + 1),
  Enter: nameStep,
  Delete: (far) => replace((far ? without : merged)(steps, stepAt(steps, shown()))),
  s: () => replace(split(steps, shown(), length(), freshName())), "[": beginHere, "]": endHere,
  y: () => mark(true), n: () => mark(false), u: () => mark(null),
  "+": () => zoomBy(1.5), "-": () => zoomBy(1 / 1.5),
};
const COMMANDS = { s: save, z: (far) => (far ? undo(future, past) : undo(past, future)), y: () => undo(future, past) };

document.addEventListener("keydown", (event) => {
  if (at < 0 || $("leave").open) return;
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  const command = (event.ctrlKey || event.metaKey) && !event.altKey;
  const target = event.target;
  const typing = target.matches("input, select");
  if (command && typing && key !== "s") return;
  if (typing && !command) {
    if (key === "Enter" || key === "Escape") target.blur();
    return;
  }
  if (target.matches("button") && (key === " " || key === "Enter")) return;
  const edge = target.closest?.(".edge");
  const turn = { ArrowLeft: -1, ArrowRight: 1 }[key];
  if (edge && turn && !command) {
    event.preventDefault();
    const boundary = boundaries(steps)[edge.dataset.boundary];
    move(boundary, boundary.frame + turn * (event.shiftKey ? FAR : 1), event.altKey);
    const after = boundaries(steps)[edge.dataset.boundary];
    return void seek(after.right < 0 ? after.frame - 1 : after.frame);
  }
  const act = (command ? COMMANDS : KEYS)[key];
  if (!act) return;
  event.preventDefault();
  act(event.shiftKey);
});

// A clicked button must not swallow the keys that follow.
document.addEventListener("click", (event) => { if (event.detail > 0) event.target.closest?.("button")?.blur(); });
addEventListener("beforeunload", (event) => { if (dirty()) event.preventDefault(); });

$("play").onclick = KEYS[" "];
$("speed").onchange = () => { if (playing) { pause(); play(); } $("speed").blur(); };
$("save").onclick = save;
$("undo").onclick = () => undo(past, future);
$("redo").onclick = () => undo(future, past);
$("propose").onclick = () => attempt(propose);
$("clear").onclick = () => edit(() => { steps = []; });
$("in").onclick = KEYS["+"];
$("out").onclick = KEYS["-"];
for (const button of $("success").querySelectorAll("button")) button.onclick = () => mark(JSON.parse(button.dataset.success));
for (const button of $("filter").children) button.onclick = () => {
  for (const other of $("filter").children) other.setAttribute("aria-pressed", other === button);
  renderList();
};

attempt(async () => {
  data = await ask("dataset");
  renderList();
  await load(clamp(parseInt(location.hash.slice(1)) || 0, 0, data.episodes.length - 1));
});
