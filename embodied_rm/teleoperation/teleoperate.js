import { $ } from "./elements.js";
import { request, showMessage } from "./server_api.js";

const SEND_MS = 200;  // time after which the same command is sent again, so that the server knows that the page is open
const SLOW = 0.3, DEAD_ZONE = 0.15;  // share of full speed with Shift; deflection of a stick that counts as none
const AXES = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowUp: [1, 1], ArrowDown: [1, -1], KeyW: [2, 1], KeyS: [2, -1] };

const pressed = new Set();
let closed = false, wasButton = false, axes = [[1, 0], [0, 1]];  // `axes`: right and forward of the first view, in the world
let sent = "", sentTime = 0, ended = false, isFirst = true;

// The command has ended, or refuses a request: nothing more is sent.
function end(error) {
  if (!ended) showMessage(error.message);
  ended = true;
}

function toggleGrip() {
  closed = !closed;
  $("grip").textContent = closed ? "grip closed" : "grip open";
  $("grip").classList.toggle("closed", closed);
}

// Right, forward and up in [-1, 1], from the keys and the first gamepad.
function readMotion() {
  const motion = [0, 0, 0];
  for (const key of pressed) if (AXES[key]) motion[AXES[key][0]] += AXES[key][1];
  const pad = navigator.getGamepads().find((gamepad) => gamepad);
  if (pad) {
    const stick = (index) => (Math.abs(pad.axes[index] ?? 0) < DEAD_ZONE ? 0 : pad.axes[index]);
    motion[0] += stick(0); motion[1] -= stick(1); motion[2] -= stick(3);
    const isButton = pad.buttons[0]?.pressed ?? false;
    if (isButton && !wasButton) toggleGrip();
    wasButton = isButton;
  }
  const scale = pressed.has("ShiftLeft") || pressed.has("ShiftRight") ? SLOW : 1;
  return motion.map((value) => scale * Math.max(-1, Math.min(1, value)));
}

function sendCommand() {
  const [right, forward, up] = readMotion();
  const world = [0, 1].map((k) => Math.max(-1, Math.min(1, right * axes[0][k] + forward * axes[1][k])));
  const body = JSON.stringify({ action: [...world, up, closed ? 1 : -1] });
  if (body !== sent || performance.now() - sentTime > SEND_MS) {
    [sent, sentTime] = [body, performance.now()];
    request("command", { method: "PUT", headers: { "Content-Type": "application/json" }, body }).catch(end);
  }
}

function sendCommands() {
  sendCommand();
  if (!ended) requestAnimationFrame(sendCommands);
}

async function showSteps() {
  let part = "";  // episode or take-over
  for (let number = 0; !ended;) {
    const step = await request(`steps/${number}`);
    if (step.number === number) continue;
    number = step.number;
    axes = step.axes;
    if ((step.step === 0 || isFirst) && closed !== step.closed) toggleGrip();
    isFirst = false;
    $("views").src = `views/${number}`;
    $("instruction").textContent = step.instruction;
    $("count").textContent = step.part;
    $("share").hidden = step.share === null;
    $("share").value = step.share ?? 0;
    showMessage(step.message);
    if (step.part !== part) {
      [part, sent] = [step.part, ""];
      sendCommand();  // that nothing moves yet: a key that is held from before begins nothing
    }
    document.body.dataset.step = `${step.part}/${step.step}`;
  }
}

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.code === "Space" && !event.repeat) toggleGrip();
  if (AXES[event.code] || event.code === "Space") event.preventDefault();
  pressed.add(event.code);
});
addEventListener("keyup", (event) => pressed.delete(event.code));
addEventListener("blur", () => pressed.clear());

sendCommands();
await showSteps().catch(end);
