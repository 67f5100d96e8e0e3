// Draws the timeline: one bar per subtask, draggable boundaries, ticks in seconds, and the cursor.

import { add } from "./elements.js";
import { findBoundaries } from "./subtasks.js";

export const subtaskColor = (i) => `hsl(${(214 + 137.5 * i) % 360} 62% var(--lightness))`;

export function drawTimeline(box, { subtasks, length, fps, zoom, proposal }) {
  const percent = (frames) => `${100 * frames / length}%`;
  box.replaceChildren();
  box.classList.toggle("proposal", proposal);
  box.style.width = `${100 * zoom}%`;
  subtasks.forEach((s, i) => {
    const bar = add(box, "div", "bar", s.name);
    [bar.style.left, bar.style.width, bar.style.backgroundColor] = [percent(s.start), percent(s.end - s.start), subtaskColor(i)];
    bar.title = `${s.name}: frames ${s.start} to ${s.end - 1}`;
  });
  findBoundaries(subtasks).forEach((b, k) => {
    const edge = add(box, "div", "edge");
    edge.style.left = percent(b.frame);
    Object.assign(edge, { tabIndex: 0, role: "slider", title: `boundary at frame ${b.frame}` });
    Object.assign(edge.dataset, { boundary: k, key: `boundary ${k}` });
    const attributes = { label: [subtasks[b.left]?.name, subtasks[b.right]?.name].filter(Boolean).join(" | "), valuemin: 0, valuemax: length, valuenow: b.frame };
    for (const [name, value] of Object.entries(attributes)) edge.setAttribute(`aria-${name}`, value);
  });
  const seconds = length / fps, minTick = seconds / (9 * zoom);
  const power = 10 ** Math.floor(Math.log10(minTick)), tick = [1, 2, 5, 10].map((m) => m * power).find((m) => m >= minTick);
  for (let k = 0; k * tick <= seconds; k++) {
    const mark = add(box, "span", "tick number", `${+(k * tick).toFixed(3)} s`);
    mark.style.left = `${100 * k * tick / seconds}%`;
  }
  add(box, "div", "cursor");
}

// Move the cursor to a frame; a zoomed timeline is scrolled so that the cursor stays visible.
export function drawCursor(box, strip, frame, length, zoom) {
  const cursor = box.lastChild;
  if (!cursor) return;
  cursor.style.left = `${100 * frame / length}%`;
  cursor.style.width = `max(2px, ${100 / length}%)`;
  const x = frame / length * strip.scrollWidth;
  const visible = x >= strip.scrollLeft + 20 && x <= strip.scrollLeft + strip.clientWidth - 20;
  if (zoom > 1 && !visible) strip.scrollLeft = x - strip.clientWidth / 2;
}
