// Line chart on a canvas: curves over time, and the subtasks of each curve below.

import { subtaskIntervals } from "./curve.js";

const LEFT = 40, RIGHT = 12, TOP = 10, PLOT = 250, AXIS = 24, BAND = 20;
const EMPTY_SECONDS = 10;  // length of the axis without data
const subtaskColor = (i, dark) => `hsl(${(214 + 137.5 * i) % 360} 62% ${dark ? 62 : 72}%)`;

export class Chart {
  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    [this.entries, this.seconds, this.now] = [[], EMPTY_SECONDS, 0];
    new ResizeObserver(() => this.draw()).observe(canvas.parentElement);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  // `entries`: [{curve, color}]; `seconds`: duration of the videos.
  show(entries, seconds, now) {
    [this.entries, this.now] = [entries, now];
    this.seconds = Math.max(seconds, ...entries.map(({ curve }) => curve.time_s.at(-1) ?? 0)) || EMPTY_SECONDS;
    this.draw();
  }

  get plotWidth() { return this.canvas.clientWidth - LEFT - RIGHT; }
  x(seconds) { return LEFT + this.plotWidth * seconds / this.seconds; }
  y(value) { return TOP + PLOT * (1 - Math.min(Math.max(value, 0), 1)); }

  // Return the time at the pointer, in seconds.
  timeAt(event) {
    const offset = event.clientX - this.canvas.getBoundingClientRect().left - LEFT;
    return this.seconds * Math.min(Math.max(offset / this.plotWidth, 0), 1);
  }

  draw() {
    const { canvas, context, entries } = this, ratio = devicePixelRatio, height = TOP + PLOT + AXIS + (BAND + 4) * entries.length;
    const style = getComputedStyle(canvas);
    this.color = (name) => (name.startsWith("--") ? style.getPropertyValue(name) : name);
    canvas.style.height = `${height}px`;
    Object.assign(canvas, { width: Math.round(canvas.clientWidth * ratio), height: Math.round(height * ratio) });
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.font = `12px ${style.fontFamily}`;
    this.drawAxes();
    entries.forEach(({ curve, color }) => this.drawLines(curve, this.color(color)));
    entries.forEach(({ curve, color }, row) => this.drawSubtasks(curve, this.color(color), TOP + PLOT + AXIS + row * (BAND + 4)));
    this.drawCursor(height);
  }

  drawAxes() {
    const { context } = this, minTick = this.seconds / Math.max(2, this.plotWidth / 90);
    const power = 10 ** Math.floor(Math.log10(minTick)), tick = [1, 2, 5, 10].map((m) => m * power).find((m) => m >= minTick);
    [context.fillStyle, context.strokeStyle, context.lineWidth] = [this.color("--faint"), this.color("--line"), 1];
    context.textAlign = "right";
    for (const value of [0, 0.25, 0.5, 0.75, 1]) {
      this.stroke([[LEFT, this.y(value)], [LEFT + this.plotWidth, this.y(value)]]);
      context.fillText(value, LEFT - 8, this.y(value) + 4);
    }
    context.textAlign = "center";
    for (let k = 0; k * tick <= this.seconds * 1.0001; k++) context.fillText(`${+(k * tick).toPrecision(6)} s`, this.x(k * tick), TOP + PLOT + 16);
  }

  stroke(points) {
    this.context.beginPath();
    for (const [x, y] of points) this.context.lineTo(x, y);
    this.context.stroke();
  }

  drawLines(curve, color) {
    const { context } = this;
    const points = (column) => curve.time_s.map((time, i) => [this.x(time), this.y(column[i])]);
    [context.strokeStyle, context.lineJoin, context.lineWidth] = [color, "round", 1.5];
    if (!curve.success.includes(null)) {
      context.setLineDash([5, 4]);
      this.stroke(points(curve.success));
      context.setLineDash([]);
    }
    context.lineWidth = 2.5;
    this.stroke(points(curve.progress));
    [context.strokeStyle, context.lineWidth] = [this.color("--bad"), 2];
    points(curve.progress).forEach(([x, y], i) => {
      if (curve.valid[i]) return;
      this.stroke([[x - 4, y - 4], [x + 4, y + 4]]);
      this.stroke([[x + 4, y - 4], [x - 4, y + 4]]);
    });
  }

  drawSubtasks(curve, color, top) {
    const { context } = this, dark = matchMedia("(prefers-color-scheme: dark)").matches;
    context.fillStyle = color;
    context.fillRect(LEFT - 12, top, 5, BAND);
    for (const [start, end, subtask] of subtaskIntervals(curve)) {
      if (subtask < 0) continue;  // the model predicts no subtasks
      const left = this.x(curve.time_s[start]), right = this.x(curve.time_s[end] ?? curve.time_s.at(-1) + 1 / curve.fps);
      const width = Math.min(right, LEFT + this.plotWidth) - left;
      const label = [`subtask ${subtask + 1}`, subtask + 1].find((text) => context.measureText(text).width < width - 6);
      context.fillStyle = subtaskColor(subtask, dark);
      context.fillRect(left, top, Math.max(1, width - 1), BAND);
      context.fillStyle = "#10131a";
      if (label) context.fillText(label, left + width / 2, top + BAND / 2 + 4);
    }
  }

  drawCursor(height) {
    const { context } = this;
    if (!this.entries.length) return;
    [context.strokeStyle, context.lineWidth] = [this.color("--bad"), 1.5];
    this.stroke([[this.x(this.now), TOP - 6], [this.x(this.now), height]]);
  }
}
