// Draws the list of episodes, with the number of annotated ones, according to the filter.

import { $, add } from "./elements.js";

const pluralize = (count, noun) => `${count} ${noun}${count === 1 ? "" : "s"}`;

export function drawEpisodeList(episodes, current, hasChanges, select) {
  const only = $("filter").querySelector('[aria-pressed="true"]').dataset.only;
  $("count").textContent = `${episodes.filter((e) => e.subtasks.length).length} of ${episodes.length} with subtasks`;
  $("episodes").replaceChildren();
  episodes.forEach((e, i) => {
    if (only === "todo" && e.subtasks.length && i !== current) return;
    const button = add(add($("episodes"), "li"), "button", e.subtasks.length ? "done" : "");
    button.setAttribute("aria-current", i === current);
    add(button, "span", "mark", e.subtasks.length ? "✓" : "○");
    add(button, "span", "name", e.name + (i === current && hasChanges ? " •" : ""));
    if (e.success !== null) add(button, "span", `chip ${e.success ? "good" : "poor"}`, e.success ? "success" : "failure");
    add(button, "small", "number", `${e.subtasks.length ? pluralize(e.subtasks.length, "subtask") : "no subtasks"}, ${pluralize(e.length, "frame")}`);
    button.onclick = () => select(i);
  });
}
