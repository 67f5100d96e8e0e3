// What a model said of an episode, moment after moment: also as a file, so that services can be compared.

const FORMAT = "embodied-rm curve 2";
const COLUMNS = { progress: false, valid: false, subtask: false, success: true, uncertainty: false, ood: true };  // -> may be unknown

export function emptyCurve(model, instruction, views, rate) {
  const curve = { format: FORMAT, model, instruction, views, fps: rate, time_s: [] };
  for (const name of Object.keys(COLUMNS)) curve[name] = [];
  return curve;
}

export function append(curve, time, columns, known) {
  curve.time_s.push(time);
  for (const [name, open] of Object.entries(COLUMNS)) curve[name].push(open ? known(columns[name][0]) : columns[name][0]);
}

// The last moment that is not after this one.
export function indexAt(curve, seconds) {
  return Math.max(0, curve.time_s.findLastIndex((time) => time <= seconds + 1e-6));
}

// Parts of the same step: [from, to, step], the end not included.
export function stagesOf(curve) {
  const parts = [];
  curve.subtask.forEach((stage, i) => {
    if (parts.length && parts.at(-1)[2] === stage) parts.at(-1)[1] = i + 1;
    else parts.push([i, i + 1, stage]);
  });
  return parts;
}

export const digestOf = (curve) => curve.model.version.slice(0, 12);
export const nameOf = (curve) => `curve_${digestOf(curve)}_${curve.instruction.replace(/\W+/g, "_").slice(0, 40)}.json`;

export function curveFrom(text, file) {
  const fault = (why) => new Error(`${file}: ${why}; a curve that this page saved was expected`);
  let curve;
  try { curve = JSON.parse(text); } catch { throw fault("is no JSON"); }
  if (curve?.format !== FORMAT) throw fault(`its format is ${JSON.stringify(curve?.format)?.slice(0, 40)}`);
  const { model, instruction, time_s: time } = curve;
  if (![model?.name, model?.version, instruction].every((word) => typeof word === "string")) throw fault("it names no model and instruction");
  if (!Array.isArray(time) || time.length === 0) throw fault("it has no moments");
  if (!time.every((at, i) => Number.isFinite(at) && at >= (time[i - 1] ?? 0))) throw fault("its times do not rise");
  for (const [name, open] of Object.entries(COLUMNS)) {
    const column = curve[name], kind = name === "valid" ? (v) => typeof v === "boolean" : Number.isFinite;
    if (column?.length !== time.length || !column.every((value) => kind(value) || (open && value === null))) throw fault(`${name} does not fit`);
  }
  return curve;
}
