// Subtasks are lists of {name, start, end} in order, frames start (included) to end (excluded). They are replaced,
// never changed in place, because the undo history keeps references to them.

export const clamp = (x, low, high) => Math.min(Math.max(x, low), high);
export const equal = (a, b) => JSON.stringify(a) === JSON.stringify(b);
export const subtaskAt = (subtasks, frame) => subtasks.findIndex((s) => s.start <= frame && frame < s.end);

// Frames at which subtasks begin or end, each with the index of the subtask that ends there (left) and of the one that
// begins there (right); -1 for none.
export function findBoundaries(subtasks) {
  const byFrame = new Map();
  subtasks.forEach((s, i) => {
    byFrame.set(s.start, { left: -1, ...byFrame.get(s.start), frame: s.start, right: i });
    byFrame.set(s.end, { frame: s.end, left: i, right: -1 });
  });
  return [...byFrame.values()];
}

export const boundaryAtStart = (subtasks, i) => findBoundaries(subtasks).find((b) => b.right === i);
export const boundaryAtEnd = (subtasks, i) => findBoundaries(subtasks).find((b) => b.left === i);

// Move a boundary as far as its neighbors allow; `oneSided` moves only one of its two subtasks, which leaves a gap.
export function moveBoundary(subtasks, { frame, left, right }, target, length, oneSided = false) {
  if (oneSided && left >= 0 && right >= 0) { if (target >= frame) left = -1; else right = -1; }
  const low = left >= 0 ? subtasks[left].start + 1 : right > 0 ? subtasks[right - 1].end : 0;
  const high = right >= 0 ? subtasks[right].end - 1 : left + 1 < subtasks.length ? subtasks[left + 1].start : length;
  const position = clamp(target, low, high);
  return subtasks.map((s, i) => (i === left ? { ...s, end: position } : i === right ? { ...s, start: position } : s));
}

// Begin a subtask at a frame: it gets the rest of the subtask there, or of the gap.
export function splitAt(subtasks, frame, length, name) {
  const i = subtaskAt(subtasks, frame);
  if (i < 0) {
    const before = subtasks.filter((s) => s.end <= frame), after = subtasks.slice(before.length);
    return [...before, { name, start: frame, end: after.length ? after[0].start : length }, ...after];
  }
  const { start, end } = subtasks[i];
  if (frame === start) return subtasks;
  return subtasks.toSpliced(i, 1, { ...subtasks[i], end: frame }, { name, start: frame, end });
}

export const removeSubtask = (subtasks, i) => (i < 0 ? subtasks : subtasks.toSpliced(i, 1));

// Merge a subtask into the one before it; remove it if none ends where it begins.
export function mergeWithPrevious(subtasks, i) {
  const previous = subtasks[i - 1];
  if (!previous || previous.end !== subtasks[i].start) return removeSubtask(subtasks, i);
  return subtasks.toSpliced(i - 1, 2, { ...previous, end: subtasks[i].end });
}
