import { $, add } from "./elements.js";
import { drawEpisodeList } from "./episode_list.js";
import { VideoPlayer } from "./player.js";
import { attempt, request, showMessage } from "./server_api.js";
import {
  boundaryAtEnd, boundaryAtStart, clamp, equal, findBoundaries, mergeWithPrevious, moveBoundary, removeSubtask, splitAt, subtaskAt,
} from "./subtasks.js";
import { drawCursor, drawTimeline, subtaskColor } from "./timeline.js";

const LONG_JUMP_FRAMES = 10, PLAY_ICON = "▶", PAUSE_ICON = "❚❚";

let dataset, current = -1;                      // the dataset; the index of the displayed episode
let version = "", stored = "";                  // the annotation on the server: its version, its content as JSON
let subtasks = [], success = null;              // the annotation on the page
let proposal = false;                           // whether the subtasks on the page are an unedited proposal
let undoStack = [], redoStack = [], player = null, playback = null, drag = null, zoom = 1, saving = false;

const episode = () => dataset.episodes[current], length = () => episode().length;
const annotationJson = () => JSON.stringify({ subtasks: subtasks.map(({ name, start, end }) => ({ name, start, end })), success });
const hasChanges = () => current >= 0 && !proposal && annotationJson() !== stored;

// ---- Episodes

async function loadEpisode(i) {
  if (player) pause();
  const annotation = await request(`episodes/${i}`);
  current = i;
  location.replace(`#${i}`);
  ({ version, subtasks, success } = annotation);
  stored = annotationJson();
  [undoStack, redoStack, proposal, zoom] = [[], [], false, 1];
  showMessage("");
  startVideo();
  render();
  seek(0);
  if (subtasks.length === 0) await attempt(propose);
}

async function propose() {
  const i = current, unedited = undoStack.length === 0 && subtasks.length === 0;
  $("propose").disabled = true;
  if (unedited) showMessage("Computing a proposal …");
  try {
    const proposed = await request(`episodes/${i}/proposal`);
    if (current !== i) return;
    if (unedited && undoStack.length === 0) [subtasks, proposal] = [proposed.subtasks, true];
    else if (!unedited) edit(() => { subtasks = proposed.subtasks; });
    showMessage("");
    render();
  } finally { $("propose").disabled = false; }
}

async function save() {
  if (saving || (!hasChanges() && !proposal)) return !hasChanges();
  saving = true;
  const i = current, body = annotationJson();
  renderState();
  try {
    const headers = { "Content-Type": "application/json", "If-Match": version };
    const saved = await request(`episodes/${i}`, { method: "PUT", headers, body });
    Object.assign(dataset.episodes[i], { subtasks: saved.subtasks.map((s) => s.name), success: saved.success });
    if (current === i) {  // another episode may have been loaded meanwhile
      [stored, version] = [JSON.stringify({ subtasks: saved.subtasks, success: saved.success }), saved.version];
      if (annotationJson() === stored) proposal = false;
      showMessage("");
    }
  } catch (error) {
    const outdated = error.status === 412;
    showMessage(`Not saved. ${error.message}`, outdated && "load what is stored, drop my changes", () => attempt(() => loadEpisode(current)));
  } finally { saving = false; }
  render();
  return !hasChanges();
}

async function goToEpisode(i) {
  if (i === current || i < 0 || i >= dataset.episodes.length) return;
  if (hasChanges()) {
    $("left").textContent = episode().name;
    $("leave").returnValue = "stay";
    $("leave").showModal();
    await new Promise((resolve) => $("leave").addEventListener("close", resolve, { once: true }));
    const choice = $("leave").returnValue;
    if (choice === "save" ? !(await save()) : choice !== "discard") return;
  }
  await attempt(() => loadEpisode(i));
}

// ---- Video

const displayedFrame = () => player.displayed;

function seek(frame) {
  player.seek(clamp(frame, 0, length() - 1));
  renderCursor();
}

async function showFrameError(frame) {
  pause();
  showMessage(`Frame ${frame} cannot be shown.`);
  for (const view of dataset.views.keys()) {
    const response = await fetch(`frames/${current}/${view}/${frame}`);
    if (!response.ok) return showMessage((await response.json()).error);
  }
}

function play() {
  const from = player.displayed >= length() - 1 ? 0 : Math.max(player.displayed, 0), startTime = performance.now();
  const thisPlayback = playback = {};
  $("play").textContent = PAUSE_ICON;
  const tick = () => {
    if (playback !== thisPlayback) return;
    const frame = from + Math.floor((performance.now() - startTime) / 1000 * episode().fps * $("speed").value);
    seek(frame);
    if (frame < length() - 1) requestAnimationFrame(tick); else stop();
  };
  tick();
}

function stop() {
  playback = null;
  $("play").textContent = PLAY_ICON;
}

// Stop at the displayed frame; frames that were requested since are dropped.
function pause() {
  if (playback) seek(player.displayed);
  stop();
}

// ---- Edits

const snapshot = () => ({ subtasks, success, proposal });

function edit(change) {
  undoStack.push(snapshot());
  redoStack = [];
  proposal = false;
  change();
  render();
}

const replace = (next) => { if (!equal(next, subtasks)) edit(() => { subtasks = next; }); };
const setSuccess = (value) => { if (value !== success) edit(() => { success = value; }); };

function undo(from, to) {
  if (from.length === 0) return;
  to.push(snapshot());
  ({ subtasks, success, proposal } = from.pop());
  render();
}

const unusedName = () => dataset.subtask_names.find((name) => !subtasks.some((s) => s.name === name)) ?? `subtask ${subtasks.length + 1}`;
const move = (boundary, target, oneSided) => replace(moveBoundary(subtasks, boundary, target, length(), oneSided));

function beginAtFrame() {
  const i = subtasks.findIndex((s) => displayedFrame() < s.end);  // in a gap: the next subtask
  if (i >= 0) move(boundaryAtStart(subtasks, i), displayedFrame());
}

function endAtFrame() {
  const i = subtasks.findLastIndex((s) => s.start <= displayedFrame());
  if (i >= 0) move(boundaryAtEnd(subtasks, i), displayedFrame() + 1);
}

function seekBoundary(direction) {
  const frames = findBoundaries(subtasks).map((b) => Math.min(b.frame, length() - 1));
  const next = direction > 0 ? frames.find((f) => f > displayedFrame()) : frames.findLast((f) => f < displayedFrame());
  seek(next ?? (direction > 0 ? length() - 1 : 0));
}

// ---- Rendering

function startVideo() {
  if (player) player.closed = true;
  $("views").replaceChildren();
  $("views").style.setProperty("--views", Math.min(dataset.views.length, 4));
  for (const view of dataset.views) {
    const figure = add($("views"), "figure");
    add(figure, "canvas");
    add(figure, "figcaption", "", view);
  }
  player = new VideoPlayer(current, length(), [...$("views").querySelectorAll("canvas")], renderReadout, showFrameError);
}

function render() {
  renderList();
  $("name").textContent = episode().name;
  $("instruction").textContent = episode().instruction;
  for (const button of $("success").querySelectorAll("button")) button.setAttribute("aria-pressed", button.dataset.success === String(success));
  $("undo").disabled = undoStack.length === 0;
  $("redo").disabled = redoStack.length === 0;
  $("clear").disabled = subtasks.length === 0;
  $("subtask-names").replaceChildren(...[...new Set([...dataset.subtask_names, ...dataset.episodes.flatMap((e) => e.subtasks)])].map((name) => new Option(name, name)));
  renderEdits();
}

const renderList = () => drawEpisodeList(dataset.episodes, current, hasChanges(), goToEpisode);
const renderTimeline = () => drawTimeline($("timeline"), { subtasks, length: length(), fps: episode().fps, zoom, proposal });

// Render the parts that change while a boundary is dragged.
function renderEdits() {
  const focus = document.activeElement?.dataset.key;
  renderState();
  renderTimeline();
  renderSubtasks();
  renderCursor();
  renderReadout();
  if (focus) document.querySelector(`[data-key="${focus}"]`)?.focus();
}

function renderState() {
  const [kind, text] = saving ? ["", "saving …"] : proposal ? ["open", "proposed, not saved"]
    : hasChanges() ? ["open", "not saved"] : ["saved", subtasks.length || success !== null ? "saved" : "nothing to save"];
  $("state").textContent = text;
  $("state").className = kind;
  $("save").disabled = kind !== "open";
  document.title = `${hasChanges() ? "• " : ""}${current < 0 ? "Annotate" : episode().name}`;
}

function renderSubtasks() {
  const body = $("subtasks").tBodies[0];
  body.replaceChildren();
  subtasks.forEach((s, i) => {
    const row = add(body, "tr");
    add(add(row, "td"), "span", "swatch").style.background = subtaskColor(i);
    const name = add(add(row, "td"), "input");
    Object.assign(name, { value: s.name, placeholder: "name of the subtask", spellcheck: true });
    name.setAttribute("list", "subtask-names");
    name.setAttribute("aria-label", `name of subtask ${i + 1}`);
    name.dataset.key = `name ${i}`;
    let beforeEdit = snapshot();
    name.oninput = () => {
      if (beforeEdit) { undoStack.push(beforeEdit); beforeEdit = null; [redoStack, proposal] = [[], false]; }
      subtasks = subtasks.with(i, { ...subtasks[i], name: name.value });
      renderTimeline(); renderCursor(); renderState(); renderReadout(); renderList();
      $("undo").disabled = false;
    };
    for (const [key, findBoundary] of [["start", boundaryAtStart], ["end", boundaryAtEnd]]) {
      const input = add(add(row, "td"), "input", "number");
      Object.assign(input, { type: "number", value: s[key], min: 0, max: length(), title: key === "end" ? "the first frame after the subtask" : "its first frame" });
      input.setAttribute("aria-label", `${key} of subtask ${i + 1}`);
      input.dataset.key = `${key} ${i}`;
      input.onchange = () => { if (input.value !== "") move(findBoundary(subtasks, i), Math.round(+input.value)); render(); };
    }
    add(row, "td", "number soft", `${s.end - s.start} · ${((s.end - s.start) / episode().fps).toFixed(1)} s`);
    const actions = add(row, "td", "actions");
    add(actions, "button", "", "go to").onclick = () => { pause(); seek(s.start); };
    const merge = add(actions, "button", "", "merge up");
    merge.disabled = i === 0 || subtasks[i - 1].end !== s.start;
    merge.onclick = () => replace(mergeWithPrevious(subtasks, i));
    add(actions, "button", "", "remove").onclick = () => replace(removeSubtask(subtasks, i));
  });
}

function renderCursor() {
  drawCursor($("timeline"), $("window"), player.target, length(), zoom);
  $("views").classList.toggle("waiting", player.target !== player.displayed);
}

function renderReadout() {
  const frame = Math.max(displayedFrame(), 0), i = subtaskAt(subtasks, frame);
  $("readout").replaceChildren();
  add($("readout"), "b", "", `frame ${frame}`);
  add($("readout"), "span", "soft", ` of ${length()} · ${(frame / episode().fps).toFixed(2)} s · `);
  const label = add($("readout"), "span", "", i < 0 ? "no subtask" : subtasks[i].name);
  if (i >= 0) label.style.setProperty("--dot", subtaskColor(i));
  label.className = i < 0 ? "soft" : "subtask";
  [...$("subtasks").tBodies[0].rows].forEach((row, k) => row.classList.toggle("current", k === i));
  [...$("timeline").querySelectorAll(".bar")].forEach((bar, k) => bar.classList.toggle("current", k === i));
  $("views").classList.toggle("waiting", player.target !== player.displayed);
  document.body.dataset.frame = displayedFrame();
}

function zoomBy(factor) {
  zoom = clamp(zoom * factor, 1, Math.max(1, length() / 30));
  renderTimeline();
  renderCursor();
  renderReadout();
  $("window").scrollLeft = player.target / length() * $("window").scrollWidth - $("window").clientWidth / 2;
}

// ---- Mouse and keyboard

const pointerFrame = (event) => {
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
    const boundary = findBoundaries(subtasks)[edge.dataset.boundary];
    drag = { boundary, before: snapshot(), offset: boundary.frame - pointerFrame(event) };
  } else { drag = {}; seek(Math.floor(pointerFrame(event))); }
};
$("timeline").onpointermove = (event) => {
  if (!drag) return;
  if (!drag.boundary) return void seek(Math.floor(pointerFrame(event)));
  const target = Math.round(pointerFrame(event) + drag.offset);
  subtasks = moveBoundary(drag.before.subtasks, drag.boundary, target, length(), event.altKey);
  proposal = drag.before.proposal && equal(subtasks, drag.before.subtasks);
  const { left, right } = drag.boundary;
  // Display the first frame after the boundary, or the last frame of a subtask without a successor.
  const moves = right >= 0 && subtasks[right].start !== drag.before.subtasks[right].start;
  seek(moves || left < 0 ? subtasks[right].start : right >= 0 ? subtasks[left].end : subtasks[left].end - 1);
  renderEdits();
};
$("timeline").onpointerup = $("timeline").onpointercancel = () => {
  const before = drag?.before;
  drag = null;
  if (!before || equal(subtasks, before.subtasks)) return;
  undoStack.push(before);
  redoStack = [];
  render();
};
$("timeline").ondblclick = () => focusName();
$("window").addEventListener("wheel", (event) => {
  if (!event.ctrlKey) return;
  event.preventDefault();
  zoomBy(event.deltaY < 0 ? 1.25 : 0.8);
}, { passive: false });

function focusName() {
  const input = document.querySelector(`[data-key="name ${subtaskAt(subtasks, displayedFrame())}"]`);
  input?.focus();
  input?.select();
}

const KEYS = {
  " ": () => (playback ? pause() : play()),
  ArrowLeft: (shift) => { pause(); seek(player.target - (shift ? LONG_JUMP_FRAMES : 1)); },
  ArrowRight: (shift) => { pause(); seek(player.target + (shift ? LONG_JUMP_FRAMES : 1)); },
  ArrowUp: () => { pause(); seekBoundary(-1); },
  ArrowDown: () => { pause(); seekBoundary(1); },
  Home: () => { pause(); seek(0); },
  End: () => { pause(); seek(length() - 1); },
  PageUp: () => goToEpisode(current - 1),
  PageDown: () => goToEpisode(current + 1),
  Enter: focusName,
  Delete: (shift) => replace((shift ? removeSubtask : mergeWithPrevious)(subtasks, subtaskAt(subtasks, displayedFrame()))),
  s: () => replace(splitAt(subtasks, displayedFrame(), length(), unusedName())), "[": beginAtFrame, "]": endAtFrame,
  y: () => setSuccess(true), n: () => setSuccess(false), u: () => setSuccess(null),
  "+": () => zoomBy(1.5), "-": () => zoomBy(1 / 1.5),
};
const COMMANDS = { s: save, z: (shift) => (shift ? undo(redoStack, undoStack) : undo(undoStack, redoStack)), y: () => undo(redoStack, undoStack) };

document.addEventListener("keydown", (event) => {
  if (current < 0 || $("leave").open) return;
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
  const direction = { ArrowLeft: -1, ArrowRight: 1 }[key];
  if (edge && direction && !command) {
    event.preventDefault();
    const boundary = findBoundaries(subtasks)[edge.dataset.boundary];
    move(boundary, boundary.frame + direction * (event.shiftKey ? LONG_JUMP_FRAMES : 1), event.altKey);
    const moved = findBoundaries(subtasks)[edge.dataset.boundary];
    return void seek(moved.right < 0 ? moved.frame - 1 : moved.frame);
  }
  const action = (command ? COMMANDS : KEYS)[key];
  if (!action) return;
  event.preventDefault();
  action(event.shiftKey);
});

// A clicked button loses the focus: it must not receive the key presses that follow.
document.addEventListener("click", (event) => { if (event.detail > 0) event.target.closest?.("button")?.blur(); });
addEventListener("beforeunload", (event) => { if (hasChanges()) event.preventDefault(); });

$("play").onclick = KEYS[" "];
$("speed").onchange = () => { if (playback) { pause(); play(); } $("speed").blur(); };
$("save").onclick = save;
[$("undo").onclick, $("redo").onclick] = [() => undo(undoStack, redoStack), () => undo(redoStack, undoStack)];
$("propose").onclick = () => attempt(propose);
$("clear").onclick = () => edit(() => { subtasks = []; });
[$("in").onclick, $("out").onclick] = [KEYS["+"], KEYS["-"]];
for (const button of $("success").querySelectorAll("button")) button.onclick = () => setSuccess(JSON.parse(button.dataset.success));
for (const button of $("filter").children) button.onclick = () => {
  for (const other of $("filter").children) other.setAttribute("aria-pressed", other === button);
  renderList();
};

attempt(async () => {
  dataset = await request("dataset");
  renderList();
  await loadEpisode(clamp(parseInt(location.hash.slice(1)) || 0, 0, dataset.episodes.length - 1));
});
