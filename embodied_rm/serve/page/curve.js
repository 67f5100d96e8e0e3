// Predictions of one episode, frame by frame. Saved as a file, so that models of two services can be compared.

const FORMAT = "embodied-rm curve 2";
const COLUMNS = { progress: false, valid: false, subtask: false, success: true, uncertainty: false, ood: true };  // name -> may be null

export function emptyCurve(model, instruction, views, fps) {
  const curve = { format: FORMAT, model, instruction, views, fps, time_s: [] };
  for (const name of Object.keys(COLUMNS)) curve[name] = [];
  return curve;
}

export function append(curve, time, columns, knownValue) {
  curve.time_s.push(time);
  for (const [name, nullable] of Object.entries(COLUMNS)) curve[name].push(nullable ? knownValue(columns[name][0]) : columns[name][0]);
}

// Return the index of the last frame at or before a time.
export function indexAt(curve, seconds) {
  return Math.max(0, curve.time_s.findLastIndex((time) => time <= seconds + 1e-6));
}

// Return intervals of equal subtask: [start, end, subtask], `end` excluded.
export function subtaskIntervals(curve) {
  const intervals = [];
  curve.subtask.forEach((subtask, i) => {
    if (intervals.length && intervals.at(-1)[2] === subtask) intervals.at(-1)[1] = i + 1;
    else intervals.push([i, i + 1, subtask]);
  });
  return intervals;
}

export const shortVersion = (curve) => curve.model.version.slice(0, 12);
export const fileName = (curve) => `curve_${shortVersion(curve)}_${curve.instruction.replace(/\W+/g, "_").slice(0, 40)}.json`;

export function parseCurve(text, file) {
  const invalid = (reason) => new Error(`${file}: ${reason}; expected a curve saved by this page`);
  let curve;
  try { curve = JSON.parse(text); } catch { throw invalid("not JSON"); }
  if (curve?.format !== FORMAT) throw invalid(`its format is ${JSON.stringify(curve?.format)?.slice(0, 40)}`);
  const { model, instruction, time_s: times } = curve;
  if (![model?.name, model?.version, instruction].every((value) => typeof value === "string")) throw invalid("it has no model or instruction");
  if (!Array.isArray(times) || times.length === 0) throw invalid("it has no frames");
  if (!times.every((time, i) => Number.isFinite(time) && time >= (times[i - 1] ?? 0))) throw invalid("its times do not increase");
  for (const [name, nullable] of Object.entries(COLUMNS)) {
    const column = curve[name], isValue = name === "valid" ? (value) => typeof value === "boolean" : Number.isFinite;
    if (column?.length !== times.length || !column.every((value) => isValue(value) || (nullable && value === null))) throw invalid(`${name} is invalid`);
  }
  return curve;
}
