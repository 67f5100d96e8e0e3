// Curves over time on a canvas, and under them the step of each.

import { stagesOf } from "./curve.js";

const LEFT = 40, RIGHT = 12, TOP = 10, PLOT = 250, AXIS = 24, BAND = 20;
const NOTHING = 10;  // s of axis where there is nothing to show
const tone = (i, dark) => `hsl(${(214 + 137.5 * i) % 360} 62% ${dark ? 62 : 72}%)`;

export class Chart {
  constructor(canvas) {
    this.canvas = canvas;
    this.pen = canvas.getContext("2d");
    [this.curves, this.seconds, this.now] = [[], NOTHING, 0];
    new ResizeObserver(() => this.draw()).observe(canvas.parentElement);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  // `curves`: [{curve, color}]; `seconds`: how long the videos last.
  show(curves, seconds, now) {
    [this.curves, this.now] = [curves, now];
    this.seconds = Math.max(seconds, ...curves.map(({ curve }) => curve.time_s.at(-1) ?? 0)) || NOTHING;
    this.draw();
  }

  get span() { return this.canvas.clientWidth - LEFT - RIGHT; }
  x(seconds) { return LEFT + this.span * seconds / this.seconds; }
  y(value) { return TOP + PLOT * (1 - Math.min(Math.max(value, 0), 1)); }

  // The moment under the pointer.
  moment(event) {
    const at = event.clientX - this.canvas.getBoundingClientRect().left - LEFT;
    return this.seconds * Math.min(Math.max(at / this.span, 0), 1);
  }

  draw() {
    const { canvas, pen, curves } = this, ratio = devicePixelRatio, height = TOP + PLOT + AXIS + (BAND + 4) * curves.length;
    const style = getComputedStyle(canvas);
    this.color = (name) => (name.startsWith("--") ? style.getPropertyValue(name) : name);
    canvas.style.height = `${height}px`;
    Object.assign(canvas, { width: Math.round(canvas.clientWidth * ratio), height: Math.round(height * ratio) });
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.font = `12px ${style.fontFamily}`;
    this.axes();
    curves.forEach(({ curve, color }) => this.lines(curve, this.color(color)));
    curves.forEach(({ curve, color }, row) => this.steps(curve, this.color(color), TOP + PLOT + AXIS + row * (BAND + 4)));
    this.cursor(height);
  }

  axes() {
    const { pen } = this, least = this.seconds / Math.max(2, this.span / 90);
    const power = 10 ** Math.floor(Math.log10(least)), tick = [1, 2, 5, 10].map((m) => m * power).find((m) => m >= least);
    [pen.fillStyle, pen.strokeStyle, pen.lineWidth] = [this.color("--faint"), this.color("--line"), 1];
    pen.textAlign = "right";
    for (const value of [0, 0.25, 0.5, 0.75, 1]) {
      this.stroke([[LEFT, this.y(value)], [LEFT + this.span, this.y(value)]]);
      pen.fillText(value, LEFT - 8, this.y(value) + 4);
    }
    pen.textAlign = "center";
    for (let k = 0; k * tick <= this.seconds * 1.0001; k++) pen.fillText(`${+(k * tick).toPrecision(6)} s`, this.x(k * tick), TOP + PLOT + 16);
  }

  stroke(points) {
    this.pen.beginPath();
    for (const [x, y] of points) this.pen.lineTo(x, y);
    this.pen.stroke();
  }

  lines(curve, color) {
    const { pen } = this;
    const points = (column) => curve.time_s.map((time, i) => [this.x(time), this.y(column[i])]);
    [pen.strokeStyle, pen.lineJoin, pen.lineWidth] = [color, "round", 1.5];
    if (!curve.success.includes(null)) {
      pen.setLineDash([5, 4]);
      this.stroke(points(curve.success));
      pen.setLineDash([]);
    }
    pen.lineWidth = 2.5;
    this.stroke(points(curve.progress));
    [pen.strokeStyle, pen.lineWidth] = [this.color("--bad"), 2];
    points(curve.progress).forEach(([x, y], i) => {
      if (curve.valid[i]) return;
      this.stroke([[x - 4, y - 4], [x + 4, y + 4]]);
      this.stroke([[x + 4, y - 4], [x - 4, y + 4]]);
    });
  }

  steps(curve, color, top) {
    const { pen } = this, dark = matchMedia("(prefers-color-scheme: dark)").matches;
    pen.fillStyle = color;
    pen.fillRect(LEFT - 12, top, 5, BAND);
    for (const [from, to, stage] of stagesOf(curve)) {
      if (stage < 0) continue;  // a model that knows no steps
      const left = this.x(curve.time_s[from]), right = this.x(curve.time_s[to] ?? curve.time_s.at(-1) + 1 / curve.fps);
      const width = Math.min(right, LEFT + this.span) - left, text = [`step ${stage + 1}`, stage + 1].find((said) => pen.measureText(said).width < width - 6);
      pen.fillStyle = tone(stage, dark);
      pen.fillRect(left, top, Math.max(1, width - 1), BAND);
      pen.fillStyle = "#10131a";
      if (text) pen.fillText(text, left + width / 2, top + BAND / 2 + 4);
    }
  }

  cursor(height) {
    const { pen } = this;
    if (!this.curves.length) return;
    [pen.strokeStyle, pen.lineWidth] = [this.color("--bad"), 1.5];
    this.stroke([[this.x(this.now), TOP - 6], [this.x(this.now), height]]);
  }
}
