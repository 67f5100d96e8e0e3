// Steps are lists of {name, start, end} in order, frames start (included) to end (excluded). They are replaced, never
// changed in place: undo holds on to them.

export const clamp = (x, low, high) => Math.min(Math.max(x, low), high);
export const same = (one, other) => JSON.stringify(one) === JSON.stringify(other);
export const stepAt = (steps, frame) => steps.findIndex((s) => s.start <= frame && frame < s.end);

// Where steps begin or end: the step that ends there (left) and the one that begins there (right), -1 for none.
export function boundaries(steps) {
  const found = new Map();
  steps.forEach((s, i) => {
    found.set(s.start, { left: -1, ...found.get(s.start), frame: s.start, right: i });
    found.set(s.end, { frame: s.end, left: i, right: -1 });
  });
  return [...found.values()];
}

export const startOf = (steps, i) => boundaries(steps).find((b) => b.right === i);
export const endOf = (steps, i) => boundaries(steps).find((b) => b.left === i);

// The steps with a boundary moved as far as its neighbors let it; `alone`: only one side of it, which leaves a gap.
export function moved(steps, { frame, left, right }, to, length, alone = false) {
  if (alone && left >= 0 && right >= 0) { if (to >= frame) left = -1; else right = -1; }
  const low = left >= 0 ? steps[left].start + 1 : right > 0 ? steps[right - 1].end : 0;
  const high = right >= 0 ? steps[right].end - 1 : left + 1 < steps.length ? steps[left + 1].start : length;
  const place = clamp(to, low, high);
  return steps.map((s, i) => (i === left ? { ...s, end: place } : i === right ? { ...s, start: place } : s));
}

// The steps with one that begins at a frame: the rest of a step, or of a gap.
export function split(steps, frame, length, name) {
  const i = stepAt(steps, frame);
  if (i < 0) {
    const behind = steps.filter((s) => s.end <= frame), rest = steps.slice(behind.length);
    return [...behind, { name, start: frame, end: rest.length ? rest[0].start : length }, ...rest];
  }
  const { start, end } = steps[i];
  if (frame === start) return steps;
  return steps.toSpliced(i, 1, { ...steps[i], end: frame }, { name, start: frame, end });
}

export const without = (steps, i) => (i < 0 ? steps : steps.toSpliced(i, 1));

// The steps with one merged into the one before it; taken away where none ends at its beginning.
export function merged(steps, i) {
  const before = steps[i - 1];
  if (!before || before.end !== steps[i].start) return without(steps, i);
  return steps.toSpliced(i - 1, 2, { ...before, end: steps[i].end });
}
