"use strict";
(() => {
  const AHEAD = 24, KEPT = 60, FAR = 10;  // moments that are fetched ahead, that are kept; frames of a long step
  const PLAY = "▶", PAUSE = "❚❚";
  const $ = (id) => document.getElementById(id);
  const clamp = (x, low, high) => Math.min(Math.max(x, low), high);
  const add = (parent, tag, className = "", text = "") => {
    const element = document.createElement(tag);
    element.className = className;
    element.textContent = text;
    return parent.appendChild(element);
  };
  const tone = (i) => `hsl(${(214 + 137.5 * i) % 360} 62% var(--tone))`;

  let data, at = -1;                              // the dataset, the episode
  let version = "", stored = "";                  // what the server has
  let steps = [], success = null;                 // what is on the page
  let proposal = false;                           // whether its steps are a proposal that nobody has touched
  let past = [], future = [];                     // what undo and redo go to
  let wanted = 0, shown = -1, drawing = false, ahead = 1;
  let playing = null, drag = null, zoom = 1, saving = false;
  const pictures = new Map();                     // "episode/view/frame" -> promise of an image, latest last

  const episode = () => data.episodes[at];
  const length = () => episode().length;
  const now = () => JSON.stringify({ steps: steps.map(({ name, start, end }) => ({ name, start, end })), success });
  const dirty = () => at >= 0 && !proposal && now() !== stored;
  const stepAt = (frame) => steps.findIndex((s) => s.start <= frame && frame < s.end);
  const counted = (n, what) => `${n} ${what}${n === 1 ? "" : "s"}`;

  // ---- the server

  async function ask(path, options = {}) {
    let response;
    try { response = await fetch(path, options); }
    catch { throw new Error("the server does not answer: is embodied-rm annotate still running?"); }
    const told = await response.json();
    if (response.ok) return { ...told, version: response.headers.get("ETag") };
    throw Object.assign(new Error(told.error), { status: response.status });
  }

  function say(text, remedy, act) {
    $("message").hidden = !text;
    $("message").textContent = text;
    if (remedy) add($("message"), "button", "", remedy).onclick = act;
  }

  // A task that the server may refuse: its sentence is shown.
  const attempt = async (task) => { try { return await task(); } catch (error) { say(error.message); } };

  async function load(i) {
    pause();
    const told = await ask(`episodes/${i}`);
    at = i;
    location.replace(`#${i}`);
    ({ version, steps, success } = told);
    stored = now();
    [past, future, proposal, shown, zoom] = [[], [], false, -1, 1];
    say("");
    buildViews();
    render();
    seek(0);
    if (steps.length === 0) await attempt(propose);
  }

  async function propose() {
    const i = at, untouched = past.length === 0 && steps.length === 0;
    $("propose").disabled = true;
    if (untouched) say("Looking for steps …");
    try {
      const told = await ask(`episodes/${i}/proposal`);
      if (at !== i) return;
      if (untouched && past.length === 0) [steps, proposal] = [told.steps, true];
      else if (!untouched) edit(() => { steps = told.steps; });
      say("");
      render();
    } finally { $("propose").disabled = false; }
  }

  async function save() {
    if (saving || (!dirty() && !proposal)) return !dirty();
    saving = true;
    const i = at, sent = now();
    renderState();
    try {
      const headers = { "Content-Type": "application/json", "If-Match": version };
      const told = await ask(`episodes/${i}`, { method: "PUT", headers, body: sent });
      [stored, version] = [JSON.stringify({ steps: told.steps, success: told.success }), told.version];
      if (now() === stored) proposal = false;
      Object.assign(data.episodes[i], { steps: told.steps.map((s) => s.name), success: told.success });
      say("");
      renderList();
    } catch (error) {
      const outdated = error.status === 412;
      say(`Not saved. ${error.message}`, outdated && "load what is stored, drop my changes", () => attempt(() => load(at)));
    } finally { saving = false; }
    render();
    return !dirty();
  }

  async function go(i) {
    if (i === at || i < 0 || i >= data.episodes.length) return;
    if (dirty()) {
      $("left").textContent = episode().name;
      $("leave").returnValue = "stay";
      $("leave").showModal();
      await new Promise((resolve) => $("leave").addEventListener("close", resolve, { once: true }));
      const choice = $("leave").returnValue;
      if (choice === "save" ? !(await save()) : choice !== "discard") return;
    }
    await attempt(() => load(i));
  }

  // ---- pictures: a frame is drawn when all its views are there, and its number is told then

  function picture(view, frame) {
    const key = `${at}/${view}/${frame}`;
    const known = pictures.get(key);
    pictures.delete(key);
    const image = new Image();
    const promise = known ?? ((image.src = `frames/${key}`), image.decode().then(() => image));
    pictures.set(key, promise);
    if (!known) promise.catch(() => pictures.delete(key));
    if (pictures.size > KEPT * data.views.length) pictures.delete(pictures.keys().next().value);
    return promise;
  }

  const moment = (frame) => Promise.all(data.views.map((_, view) => picture(view, frame)));

  async function seek(frame) {
    const next = clamp(frame, 0, length() - 1);
    if (next !== wanted) ahead = next < wanted ? -1 : 1;
    wanted = next;
    renderCursor();
    if (drawing) return;
    drawing = true;
    try {
      while (shown !== wanted) {
        const [i, due] = [at, wanted];
        const images = await moment(due);
        if (i !== at) continue;
        images.forEach((image, view) => {
          const canvas = $("views").children[view].firstChild;
          if (canvas.width !== image.naturalWidth || canvas.height !== image.naturalHeight)
            [canvas.width, canvas.height] = [image.naturalWidth, image.naturalHeight];
          canvas.getContext("2d").drawImage(image, 0, 0);
        });
        shown = due;
        renderReadout();
      }
    } catch {
      pause();
      say(`Frame ${wanted} cannot be shown.`);
      await attempt(async () => { for (const view of data.views.keys()) await ask(`frames/${at}/${view}/${wanted}`).catch((e) => { if (e.status) throw e; }); });
    } finally { drawing = false; }
    prefetch();
  }

  async function prefetch() {
    const from = wanted;
    for (let k = 1; k <= AHEAD; k++) {
      const frame = from + k * ahead;
      if (wanted !== from && !playing || frame < 0 || frame >= length()) return;
      try { await moment(frame); } catch { return; }
    }
  }

  function play() {
    if (shown >= length() - 1) wanted = shown = -1;
    playing = { from: Math.max(shown, 0), since: performance.now() };
    const tick = () => {
      if (!playing) return;
      const due = playing.from + Math.floor((performance.now() - playing.since) / 1000 * episode().fps * $("speed").value);
      seek(due);
      if (due < length() - 1) return void requestAnimationFrame(tick);
      playing = null;  // the last frame is on its way
      $("play").textContent = PLAY;
    };
    $("play").textContent = PAUSE;
    tick();
  }

  function pause() {
    if (playing) { playing = null; wanted = Math.max(shown, 0); renderCursor(); }
    $("play").textContent = PLAY;
  }

  // ---- changes: steps are replaced, never changed in place, so that undo can hold on to them

  const snapshot = () => ({ steps, success, proposal });
  const restore = (one) => { ({ steps, success, proposal } = one); render(); };

  function edit(change) {
    past.push(snapshot());
    future = [];
    proposal = false;
    change();
    render();
  }

  function undo(from, to) {
    if (from.length === 0) return;
    to.push(snapshot());
    restore(from.pop());
  }

  const freshName = () => data.names.find((name) => !steps.some((s) => s.name === name)) ?? `step ${steps.length + 1}`;

  function split() {
    const frame = shown, i = stepAt(frame);
    if (i < 0) {  // in a gap: from here to the next step
      const behind = steps.filter((s) => s.end <= frame), rest = steps.slice(behind.length);
      const end = rest.length ? rest[0].start : length();
      return edit(() => { steps = [...behind, { name: freshName(), start: frame, end }, ...rest]; });
    }
    const { name, start, end } = steps[i];
    if (frame === start) return;
    edit(() => { steps = steps.toSpliced(i, 1, { name, start, end: frame }, { name: freshName(), start: frame, end }); });
  }

  function merge(i) {
    if (i < 0) return;
    const before = steps[i - 1];
    if (!before || before.end !== steps[i].start) return takeAway(i);
    edit(() => { steps = steps.toSpliced(i - 1, 2, { ...before, end: steps[i].end }); });
  }

  const takeAway = (i) => { if (i >= 0) edit(() => { steps = steps.toSpliced(i, 1); }); };

  // Where steps begin or end: the step that ends there (left) and the one that begins there (right), -1 for none.
  function boundaries() {
    const found = new Map();
    steps.forEach((s, i) => {
      found.set(s.start, { left: -1, ...found.get(s.start), frame: s.start, right: i });
      found.set(s.end, { frame: s.end, left: i, right: -1 });
    });
    return [...found.values()];
  }

  // `all` with a boundary moved as far as its neighbours let it; `alone`: only one side of it, which leaves a gap.
  function moved(all, { frame, left, right }, to, alone) {
    if (alone && left >= 0 && right >= 0) { if (to >= frame) left = -1; else right = -1; }
    const low = left >= 0 ? all[left].start + 1 : right > 0 ? all[right - 1].end : 0;
    const high = right >= 0 ? all[right].end - 1 : left + 1 < all.length ? all[left + 1].start : length();
    const place = clamp(to, low, high);
    return all.map((s, i) => (i === left ? { ...s, end: place } : i === right ? { ...s, start: place } : s));
  }

  function move(boundary, to, alone = false) {
    const next = moved(steps, boundary, to, alone);
    if (boundary && JSON.stringify(next) !== JSON.stringify(steps)) edit(() => { steps = next; });
  }

  const startOf = (i) => boundaries().find((b) => b.right === i);
  const endOf = (i) => boundaries().find((b) => b.left === i);

  function beginHere() {
    const i = steps.findIndex((s) => shown < s.end);  // in a gap: the step behind it
    if (i >= 0) move(startOf(i), shown);
  }

  function endHere() {
    const i = steps.findLastIndex((s) => s.start <= shown);
    if (i >= 0) move(endOf(i), shown + 1);
  }

  function toBoundary(direction) {
    const frames = boundaries().map((b) => Math.min(b.frame, length() - 1));
    const next = direction > 0 ? frames.find((f) => f > shown) : frames.findLast((f) => f < shown);
    seek(next ?? (direction > 0 ? length() - 1 : 0));
  }

  const mark = (value) => { if (value !== success) edit(() => { success = value; }); };

  // ---- what is seen

  function buildViews() {
    $("views").replaceChildren();
    $("views").style.setProperty("--views", Math.min(data.views.length, 4));
    for (const view of data.views) {
      const figure = add($("views"), "figure");
      add(figure, "canvas");
      add(figure, "figcaption", "", view);
    }
  }

  function render() {
    renderList();
    $("name").textContent = episode().name;
    $("instruction").textContent = episode().instruction;
    for (const button of $("success").querySelectorAll("button")) button.setAttribute("aria-pressed", button.dataset.success === String(success));
    $("undo").disabled = past.length === 0;
    $("redo").disabled = future.length === 0;
    $("clear").disabled = steps.length === 0;
    $("names").replaceChildren(...[...new Set([...data.names, ...data.episodes.flatMap((e) => e.steps)])].map((name) => new Option(name, name)));
    renderEdits();
  }

  // What changes while a boundary is dragged.
  function renderEdits() {
    const focus = document.activeElement?.dataset.key;
    renderState();
    renderTimeline();
    renderSteps();
    renderCursor();
    renderReadout();
    if (focus) document.querySelector(`[data-key="${focus}"]`)?.focus();
  }

  function renderState() {
    const [kind, text] = saving ? ["", "saving …"] : proposal ? ["open", "proposed, not saved"]
      : dirty() ? ["open", "not saved"] : ["saved", steps.length || success !== null ? "saved" : "nothing to save"];
    $("state").textContent = text;
    $("state").className = kind;
    $("save").disabled = kind !== "open";
    document.title = `${dirty() ? "• " : ""}${at < 0 ? "Annotate" : episode().name}`;
  }

  function renderList() {
    const only = $("filter").querySelector('[aria-pressed="true"]').dataset.only;
    $("count").textContent = `${data.episodes.filter((e) => e.steps.length).length} of ${data.episodes.length} with steps`;
    $("episodes").replaceChildren();
    data.episodes.forEach((e, i) => {
      if (only === "todo" && e.steps.length && i !== at) return;
      const button = add(add($("episodes"), "li"), "button", e.steps.length ? "done" : "");
      button.setAttribute("aria-current", i === at);
      add(button, "span", "mark", e.steps.length ? "✓" : "○");
      add(button, "span", "who", e.name + (i === at && dirty() ? " •" : ""));
      if (e.success !== null) add(button, "span", `chip ${e.success ? "good" : "poor"}`, e.success ? "success" : "failure");
      add(button, "small", "number", `${e.steps.length ? counted(e.steps.length, "step") : "no steps"}, ${counted(e.length, "frame")}`);
      button.onclick = () => go(i);
    });
  }

  function renderTimeline() {
    const box = $("timeline"), part = (frames) => `${100 * frames / length()}%`;
    box.replaceChildren();
    box.classList.toggle("proposal", proposal);
    box.style.width = `${100 * zoom}%`;
    steps.forEach((s, i) => {
      const bar = add(box, "div", "bar", s.name);
      [bar.style.left, bar.style.width, bar.style.backgroundColor] = [part(s.start), part(s.end - s.start), tone(i)];
      bar.title = `${s.name}: frames ${s.start} to ${s.end - 1}`;
    });
    boundaries().forEach((b, k) => {
      const edge = add(box, "div", "edge");
      edge.style.left = part(b.frame);
      Object.assign(edge, { tabIndex: 0, role: "slider", title: `boundary at frame ${b.frame}` });
      Object.assign(edge.dataset, { boundary: k, key: `boundary ${k}` });
      const told = { label: [steps[b.left]?.name, steps[b.right]?.name].filter(Boolean).join(" | "), valuemin: 0, valuemax: length(), valuenow: b.frame };
      for (const [name, value] of Object.entries(told)) edge.setAttribute(`aria-${name}`, value);
    });
    const seconds = length() / episode().fps, least = seconds / (9 * zoom);
    const power = 10 ** Math.floor(Math.log10(least)), tick = [1, 2, 5, 10].map((m) => m * power).find((m) => m >= least);
    for (let k = 0; k * tick <= seconds; k++) {
      const mark = add(box, "span", "tick number", `${+(k * tick).toFixed(3)} s`);
      mark.style.left = `${100 * k * tick / seconds}%`;
    }
    add(box, "div", "cursor");
  }

  function renderSteps() {
    const body = $("steps").tBodies[0];
    body.replaceChildren();
    steps.forEach((s, i) => {
      const row = add(body, "tr");
      add(add(row, "td"), "span", "swatch").style.background = tone(i);
      const name = add(add(row, "td"), "input");
      Object.assign(name, { value: s.name, placeholder: "name of the step", spellcheck: true });
      name.setAttribute("list", "names");
      name.setAttribute("aria-label", `name of step ${i + 1}`);
      name.dataset.key = `name ${i}`;
      let before = snapshot();
      name.oninput = () => {
        if (before) { past.push(before); before = null; [future, proposal] = [[], false]; }
        steps = steps.with(i, { ...steps[i], name: name.value });
        renderTimeline(); renderCursor(); renderState(); renderReadout(); renderList();
        $("undo").disabled = false;
      };
      for (const [key, found] of [["start", startOf], ["end", endOf]]) {
        const input = add(add(row, "td"), "input", "number");
        Object.assign(input, { type: "number", value: s[key], min: 0, max: length(), title: key === "end" ? "the first frame behind the step" : "its first frame" });
        input.setAttribute("aria-label", `${key} of step ${i + 1}`);
        input.dataset.key = `${key} ${i}`;
        input.onchange = () => { if (input.value !== "") move(found(i), Math.round(+input.value)); render(); };
      }
      add(row, "td", "number soft", `${s.end - s.start} · ${((s.end - s.start) / episode().fps).toFixed(1)} s`);
      const acts = add(row, "td", "acts");
      const go = add(acts, "button", "", "show");
      go.onclick = () => { pause(); seek(s.start); };
      const up = add(acts, "button", "", "merge up");
      up.disabled = i === 0 || steps[i - 1].end !== s.start;
      up.onclick = () => merge(i);
      add(acts, "button", "", "remove").onclick = () => takeAway(i);
    });
  }

  function renderCursor() {
    const cursor = $("timeline").lastChild, strip = $("window");
    if (!cursor) return;
    cursor.style.left = `${100 * wanted / length()}%`;
    cursor.style.width = `max(2px, ${100 / length()}%)`;
    const x = wanted / length() * strip.scrollWidth;
    if (zoom > 1 && (x < strip.scrollLeft + 20 || x > strip.scrollLeft + strip.clientWidth - 20)) strip.scrollLeft = x - strip.clientWidth / 2;
  }

  function renderReadout() {
    const frame = Math.max(shown, 0), i = stepAt(frame);
    $("readout").replaceChildren();
    add($("readout"), "b", "", `frame ${frame}`);
    add($("readout"), "span", "soft", ` of ${length()} · ${(frame / episode().fps).toFixed(2)} s · `);
    const step = add($("readout"), "span", "", i < 0 ? "no step" : steps[i].name);
    if (i >= 0) step.style.setProperty("--dot", tone(i));
    step.className = i < 0 ? "soft" : "step";
    [...$("steps").tBodies[0].rows].forEach((row, k) => row.classList.toggle("current", k === i));
    [...$("timeline").querySelectorAll(".bar")].forEach((bar, k) => bar.classList.toggle("current", k === i));
    document.body.dataset.frame = shown;
  }

  function zoomBy(factor) {
    zoom = clamp(zoom * factor, 1, Math.max(1, length() / 30));
    renderTimeline();
    renderCursor();
    renderReadout();
    $("window").scrollLeft = wanted / length() * $("window").scrollWidth - $("window").clientWidth / 2;
  }

  // ---- hands

  const pointed = (event) => {
    const box = $("timeline").getBoundingClientRect();
    return (event.clientX - box.left) / box.width * length();
  };

  $("timeline").onpointerdown = (event) => {
    if (event.button !== 0) return;
    pause();
    $("timeline").setPointerCapture(event.pointerId);
    const edge = event.target.closest(".edge");
    if (edge) {
      event.preventDefault();
      edge.focus();
      const boundary = boundaries()[edge.dataset.boundary];
      drag = { boundary, before: snapshot(), off: boundary.frame - pointed(event) };
    } else { drag = {}; seek(Math.floor(pointed(event))); }
  };
  $("timeline").onpointermove = (event) => {
    if (!drag) return;
    if (!drag.boundary) return void seek(Math.floor(pointed(event)));
    const to = Math.round(pointed(event) + drag.off);
    steps = moved(drag.before.steps, drag.boundary, to, event.altKey);
    proposal = drag.before.proposal && JSON.stringify(steps) === JSON.stringify(drag.before.steps);
    const { left, right } = drag.boundary;
    // What is shown is the first frame behind the boundary, or the last one of a step that nothing follows.
    const moves = right >= 0 && steps[right].start !== drag.before.steps[right].start;
    seek(moves || left < 0 ? steps[right].start : right >= 0 ? steps[left].end : steps[left].end - 1);
    renderEdits();
  };
  $("timeline").onpointerup = $("timeline").onpointercancel = () => {
    const before = drag?.before;
    drag = null;
    if (!before || JSON.stringify(steps) === JSON.stringify(before.steps)) return;
    past.push(before);
    future = [];
    render();
  };
  $("timeline").ondblclick = () => nameStep();
  $("window").addEventListener("wheel", (event) => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    zoomBy(event.deltaY < 0 ? 1.25 : 0.8);
  }, { passive: false });

  function nameStep() {
    const input = document.querySelector(`[data-key="name ${stepAt(shown)}"]`);
    input?.focus();
    input?.select();
  }

  const KEYS = {
    " ": () => (playing ? pause() : play()),
    ArrowLeft: (far) => { pause(); seek(wanted - (far ? FAR : 1)); },
    ArrowRight: (far) => { pause(); seek(wanted + (far ? FAR : 1)); },
    ArrowUp: () => { pause(); toBoundary(-1); },
    ArrowDown: () => { pause(); toBoundary(1); },
    Home: () => { pause(); seek(0); },
    End: () => { pause(); seek(length() - 1); },
    PageUp: () => go(at - 1),
    PageDown: () => go(at + 1),
    Enter: nameStep,
    Delete: (far) => (far ? takeAway : merge)(stepAt(shown)),
    Backspace: (far) => (far ? takeAway : merge)(stepAt(shown)),
    s: split, "[": beginHere, "]": endHere,
    y: () => mark(true), n: () => mark(false), u: () => mark(null),
    "+": () => zoomBy(1.5), "-": () => zoomBy(1 / 1.5),
  };
  const COMMANDS = { s: save, z: (far) => (far ? undo(future, past) : undo(past, future)), y: () => undo(future, past) };

  document.addEventListener("keydown", (event) => {
    if (at < 0 || $("leave").open) return;
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    const command = (event.ctrlKey || event.metaKey) && !event.altKey;
    const target = event.target;
    const typing = target.matches("input, select");
    if (command && typing && key !== "s") return;
    if (typing && !command) {
      if (key === "Enter" || key === "Escape") target.blur();
      return;
    }
    if (target.matches("button") && (key === " " || key === "Enter")) return;
    const edge = target.closest?.(".edge");
    const turn = { ArrowLeft: -1, ArrowRight: 1 }[key];
    if (edge && turn && !command) {
      event.preventDefault();
      const boundary = boundaries()[edge.dataset.boundary];
      move(boundary, boundary.frame + turn * (event.shiftKey ? FAR : 1), event.altKey);
      const after = boundaries()[edge.dataset.boundary];
      return void seek(after.right < 0 ? after.frame - 1 : after.frame);
    }
    const act = (command ? COMMANDS : KEYS)[key];
    if (!act) return;
    event.preventDefault();
    act(event.shiftKey);
  });

  // A clicked button must not swallow the keys that follow.
  document.addEventListener("click", (event) => { if (event.detail > 0) event.target.closest?.("button")?.blur(); });
  addEventListener("beforeunload", (event) => { if (dirty()) event.preventDefault(); });

  $("play").onclick = KEYS[" "];
  $("speed").onchange = () => { if (playing) { pause(); play(); } $("speed").blur(); };
  $("save").onclick = save;
  $("undo").onclick = () => undo(past, future);
  $("redo").onclick = () => undo(future, past);
  $("propose").onclick = () => attempt(propose);
  $("clear").onclick = () => edit(() => { steps = []; });
  $("in").onclick = KEYS["+"];
  $("out").onclick = KEYS["-"];
  for (const button of $("success").querySelectorAll("button")) button.onclick = () => mark(JSON.parse(button.dataset.success));
  for (const button of $("filter").children) button.onclick = () => {
    for (const other of $("filter").children) other.setAttribute("aria-pressed", other === button);
    renderList();
  };

  attempt(async () => {
    data = await ask("dataset");
    renderList();
    await load(clamp(parseInt(location.hash.slice(1)) || 0, 0, data.episodes.length - 1));
  });
})();
