import { $, add } from "./elements.js";
import { VideoPlayer } from "./player.js";
import { attempt, request, showMessage } from "./server_api.js";

const HOLD_S = 1;  // time for which the last frame of a clip stays, s
const KEYS = { a: "A", ArrowLeft: "A", b: "B", ArrowRight: "B", n: "neither", ArrowDown: "neither", s: "skip" };

let views, choices, current = 0;  // the views; the choice of each pair; the displayed pair
let clips = [], players = [], startTime = 0, storing = false;

const sections = ["A", "B"].map((name) => document.querySelector(`section[data-clip="${name}"]`));
const buttons = [...document.querySelectorAll("button[data-choice]")];
const isAnswered = (choice) => choice !== "skip";

// The next pair without an answer after `index`, else the first one without, else the last pair.
function nextOpen(index) {
  const open = choices.map((choice, i) => (isAnswered(choice) ? -1 : i)).filter((i) => i >= 0);
  return open.find((i) => i > index) ?? open[0] ?? choices.length - 1;
}

async function showPair(index) {
  const pair = await request(`pairs/${index}`);
  players.forEach((player) => { player.closed = true; });
  current = index;
  clips = pair.clips;
  $("instruction").textContent = pair.instruction;
  players = clips.map((clip, k) => openClip(clip, sections[k]));
  await Promise.all(players.map((player) => player.loadFrame(0)));
  startTime = performance.now();
  document.body.dataset.pair = index;
  render();
}

function openClip(clip, section) {
  const box = section.querySelector(".views");
  box.replaceChildren();
  delete section.dataset.frame;  // nothing of the new clip is displayed yet
  const canvases = views.map((view) => {
    const figure = add(box, "figure"), canvas = add(figure, "canvas");
    add(figure, "figcaption", "", view);
    return canvas;
  });
  const onError = (frame) => showMessage(`frame ${frame} of a clip cannot be loaded`);
  return new VideoPlayer(clip.episode, clip.length, canvases, (frame) => { section.dataset.frame = frame; }, onError, clip.start);
}

function render() {
  const answered = choices.filter(isAnswered).length;
  $("count").textContent = `pair ${current + 1} of ${choices.length}, ${answered} answered`;
  $("share").value = answered / choices.length;
  $("back").disabled = current === 0;
  for (const button of buttons) button.setAttribute("aria-pressed", isAnswered(choices[current]) && button.dataset.choice === choices[current]);
  for (const section of sections) section.classList.toggle("chosen", section.dataset.clip === choices[current]);
  if (answered === choices.length) showMessage("Every pair is answered. Press Ctrl-C in the terminal, or change an answer.");
}

async function choose(choice) {
  if (storing) return;
  storing = true;
  const index = current;
  try {
    const headers = { "Content-Type": "application/json" };
    await request(`pairs/${index}`, { method: "PUT", headers, body: JSON.stringify({ choice }) });
    choices[index] = choice;
    showMessage("");
    await showPair(choice === "skip" ? Math.min(index + 1, choices.length - 1) : nextOpen(index));
  } finally { storing = false; }
}

// Both clips begin together; each repeats at its own rate, and stays at its last frame for a moment.
function play(now) {
  const elapsed = Math.max(0, now - startTime) / 1000 * Number($("speed").value);
  players.forEach((player, k) => {
    const { length, fps } = clips[k];
    player.seek(Math.min(length - 1, Math.floor((elapsed % (length / fps + HOLD_S)) * fps)));
  });
  requestAnimationFrame(play);
}

for (const button of buttons) button.onclick = () => attempt(() => choose(button.dataset.choice));
$("speed").onchange = () => $("speed").blur();  // keys answer again
$("back").onclick = () => attempt(() => showPair(current - 1));
addEventListener("keydown", (event) => {
  if (event.repeat || storing || event.ctrlKey || event.metaKey || event.altKey || event.target.tagName === "SELECT") return;
  const choice = KEYS[event.key.length === 1 ? event.key.toLowerCase() : event.key];
  if (choice) { event.preventDefault(); attempt(() => choose(choice)); }
  if (event.key === "Backspace" && current > 0) { event.preventDefault(); attempt(() => showPair(current - 1)); }
});

await attempt(async () => {
  ({ views, choices } = await request("comparisons"));
  await showPair(nextOpen(-1));
  requestAnimationFrame(play);
});
