"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const page = document.getElementById("page");
  const COLORS = ["var(--model)", "#d9730d", "var(--done)", "#9b51c9", "var(--faint)"];

  const escape = (text) => String(text).replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);
  const words = (text) => escape(String(text).replaceAll("_", " "));
  const percent = (x) => `${Math.round(1000 * x) / 10} %`;
  const number = (x) => {
    if (x === null) return "–";
    const text = Math.abs(x) >= 1000 ? Math.round(x).toLocaleString("en") : String(+x.toPrecision(3));
    return text.replace("-", "−");
  };
  const stroke = (attributes) => `<svg><line x2="20" y1="1.5" y2="1.5" ${attributes}/></svg>`;
  const add = (parent, tag, className, inner) => {
    const element = document.createElement(tag);
    if (className) element.className = className;
    if (inner !== undefined) element.innerHTML = inner;
    return parent.appendChild(element);
  };
  const section = (title, hint) => {
    const element = add(page, "section");
    add(element, "h2", "", escape(title));
    if (hint) add(element, "p", "hint", escape(hint));
    return element;
  };
  const path = (values, x, y) => {
    let pen = "M", out = "";
    values.forEach((value, i) => {
      if (value === null) { pen = "M"; return; }
      out += `${pen}${x(i).toFixed(1)} ${y(value).toFixed(1)}`;
      pen = "L";
    });
    return out;
  };
  const onResize = (element, draw) => {
    let last = 0;
    new ResizeObserver(() => {
      const width = Math.floor(element.clientWidth);
      if (width && width !== last) { last = width; draw(width); }
    }).observe(element);
  };

  function keyMetrics() {
    const grid = add(page, "section", "figures");
    for (const metric of data.key_metrics) {
      const card = add(grid, "div", "figure card");
      add(card, "div", "label", escape(metric.label));
      add(card, "div", "value number", escape(number(metric.value)));
      const result = metric.passed === null ? "" : metric.passed ? "met" : "missed";
      add(card, "div", `target ${result}`, escape(metric.target ? `${{ met: "✓ ", missed: "✗ ", "": "" }[result]}${metric.target}` : ""));
    }
  }

  function cases() {
    const part = section("Cases", "Modification of the episodes, expected result and measured result.");
    const rows = data.cases.map((c) => {
      const [result, label] = c.passed === null ? ["", c.value === null ? "skipped" : "no expectation"] : c.passed ? ["met", "✓ passed"] : ["missed", "✗ failed"];
      const value = c.value === null ? "" : `<b>${number(c.value)}</b><small>${escape(c.metric)}, n&nbsp;=&nbsp;${c.num_trials}</small>`;
      const note = c.note && c.passed !== true ? `<small>${escape(c.note)}</small>` : "";
      return `<tr class="${result}"><td>${words(c.name)}</td><td>${escape(c.procedure)}${note}</td>
        <td>${escape(c.expected)}</td><td class="number">${value}</td><td>${label}</td></tr>`;
    });
    add(add(part, "div", "card"), "table", "checks", `<tr><th>case</th><th>modification</th><th>expected</th><th>measured</th><th></th></tr>${rows.join("")}`);
  }

  function success() {
    const box = add(section("Success", "Success is evaluated from the simulator's state, not by the model. Whiskers are 95 % intervals."), "div", "success card");
    for (const row of data.success_rates) {
      const task = add(box, "div", "task");
      add(task, "div", "name", escape(row.task));
      const bars = add(task, "div");
      const names = Object.keys(row.rates);
      names.forEach((name, i) => {
        const r = row.rates[name];
        const bar = add(bars, "div", `rate${i === names.length - 1 ? " last" : ""}`);
        add(bar, "span", "who", escape(name));
        add(bar, "div", "track", `<div class="fill" style="width:${100 * r.value}%"></div>
          <div class="whisker" style="left:${100 * r.low}%;width:${100 * (r.high - r.low)}%"></div>`);
        add(bar, "span", "text number", `<b>${percent(r.value)}</b> &nbsp;${(100 * r.low).toFixed(1)}–${(100 * r.high).toFixed(1)}, n = ${r.episodes}`);
      });
    }
  }

  function ticks(low, high, count) {
    const rough = (high - low) / count, power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough);
    const out = [];
    for (let k = Math.ceil(low / step - 1e-9); k <= high / step + 1e-9; k++) out.push(+(k * step).toPrecision(12));
    return out;
  }

  function curve(parent, c) {
    const card = add(parent, "div", "curve card");
    add(card, "h3", "", escape(c.title));
    const names = Object.keys(c.series);
    const legend = add(card, "div", "key number");
    const box = add(card, "div", "chart");
    const all = [...names.map((n) => c.series[n]), ...Object.values(c.bands).flat()].flat().filter((v) => v !== null);
    const length = Math.max(...names.map((n) => c.series[n].length));
    let low = Math.min(0, ...all), high = Math.max(0, c.y_max ?? 0, ...all);
    if (high === low) high = low + 1;
    const label = (at) => {
      legend.innerHTML = names.map((n, i) => `<span>${stroke(`stroke="${COLORS[i % COLORS.length]}" stroke-width="2.5"`)}${escape(n)}${
        at === null ? "" : ` <b>${number(c.series[n][at] ?? null)}</b>`}</span>`).join("") +
        (at === null ? "" : `<span>${escape(c.x_label)} ${at}</span>`);
    };
    label(null);
    onResize(box, (width) => {
      const height = 190, left = 38, right = 8, top = 8, bottom = 26;
      const x = (i) => left + (width - left - right) * (length > 1 ? i / (length - 1) : 0.5);
      const y = (v) => top + (height - top - bottom) * (1 - (v - low) / (high - low));
      const across = ticks(low, high, 4).map((t) => `<line class="grid" x1="${left}" x2="${width - right}" y1="${y(t)}" y2="${y(t)}"/>
        <text x="${left - 7}" y="${y(t) + 4}" text-anchor="end">${number(t)}</text>`).join("");
      const along = ticks(0, Math.max(length - 1, 1), 5).filter((t) => Number.isInteger(t) && t < length)
        .map((t) => `<text x="${x(t)}" y="${height - 9}" text-anchor="middle">${t}</text>`).join("");
      const around = names.map((n, i) => n in c.bands ? `<path class="band" fill="${COLORS[i % COLORS.length]}" d="${
        path(c.bands[n][0], x, y)}${path([...c.bands[n][1]].reverse(), (k) => x(c.bands[n][1].length - 1 - k), y).replace("M", "L")}Z"/>` : "").join("");
      const lines = names.map((n, i) => `<path class="path" stroke="${COLORS[i % COLORS.length]}" d="${path(c.series[n], x, y)}"/>`).join("");
      box.innerHTML = `<svg height="${height}" role="img" aria-label="${escape(c.title)}">${across}${along}${around}${lines}
        <line class="cursor" y1="${top}" y2="${height - bottom}" visibility="hidden"/></svg>`;
      const cursor = box.querySelector(".cursor");
      box.onpointermove = (event) => {
        const share = (event.clientX - box.getBoundingClientRect().left - left) / (width - left - right);
        const at = Math.round(Math.min(Math.max(share, 0), 1) * (length - 1));
        cursor.setAttribute("x1", x(at)); cursor.setAttribute("x2", x(at)); cursor.setAttribute("visibility", "visible");
        label(at);
      };
      box.onpointerleave = () => { cursor.setAttribute("visibility", "hidden"); label(null); };
    });
  }

  function curves() {
    const grid = add(section("Learning", "Move over a chart to read its values."), "div", "curves");
    for (const c of data.charts) curve(grid, c);
  }

  function tables() {
    const code = (text) => escape(text).replace(/`([^`]*)`/g, "<code>$1</code>");
    for (const t of data.tables) {
      const rows = t.rows.map((row) => `<tr>${row.map((cell) => `<td>${code(cell)}</td>`).join("")}</tr>`);
      const head = `<tr>${t.header.map((name) => `<th>${code(name)}</th>`).join("")}</tr>`;
      add(add(section(t.title), "div", "card wide"), "table", "plain number", head + rows.join(""));
    }
  }

  const PLAY = '<svg viewBox="0 0 14 14"><path d="M3 1.2v11.6L12.6 7z"/></svg>';
  const PAUSE = '<svg viewBox="0 0 14 14"><path d="M2.5 1.5h3v11h-3zM8.5 1.5h3v11h-3z"/></svg>';

  function chips(p) {
    const out = [];
    const good = (right) => (right === null ? "" : right ? "good" : "poor");
    if (p.outcome) out.push(`<span class="chip ${good(p.success)}">${words(p.outcome)}</span>`);
    else if (p.success !== null) out.push(`<span class="chip ${good(p.success)}">${p.success ? "success" : "failure"}</span>`);
    if (p.success_prob) {
      const probability = p.success_prob[p.success_prob.length - 1];
      const right = p.success === null ? null : (probability > 0.5) === p.success;
      out.push(`<span class="chip number ${right === false ? "poor" : ""}">predicted success: ${percent(probability)}</span>`);
    }
    return out.join("");
  }

  function legend(p) {
    return (p.progress ? `<span>${stroke('stroke="var(--model)" stroke-width="2.5"')}predicted progress</span>` : "") +
      (p.true_progress ? `<span>${stroke('class="truth"')}true progress</span>` : "") +
      (p.success_prob ? `<span>${stroke('class="done"')}predicted probability of success</span>` : "");
  }

  function panel(parent, p, index) {
    const length = p.num_frames;
    const card = add(parent, "article", "panel card");
    card.style.setProperty("--screen", `${Math.min(51, 20 * p.views.length)}%`);
    card.dataset.outcome = p.outcome || (p.success === null ? "" : p.success ? "success" : "failure");
    add(card, "header", "", `<h3>${escape(p.instruction) || "no instruction"}</h3>${chips(p)}<span class="file">${escape(p.name)}</span>`);
    const screen = add(card, "div", "screen");
    const video = add(screen, "video");
    Object.assign(video, { muted: true, loop: true, playsInline: true, preload: "auto" });
    const play = add(screen, "button", "play", PLAY);
    play.setAttribute("aria-label", "play or pause");
    add(screen, "div", "views", p.views.map((v) => `<span>${escape(v)}</span>`).join(""));
    const side = add(card, "div");
    add(side, "div", "key", legend(p));
    const box = add(side, "div", "chart");
    Object.assign(box, { tabIndex: 0, role: "slider" });
    box.setAttribute("aria-label", `frame of ${p.name}`);
    box.setAttribute("aria-valuemin", 0);
    box.setAttribute("aria-valuemax", length - 1);
    const readout = add(side, "div", "readout number");
    let frame = -1, geometry = null;

    const subtaskAt = (i) => p.subtasks.findIndex((s) => s.start <= i && i < s.end);
    const show = (i) => {
      frame = i;
      box.setAttribute("aria-valuenow", i);
      const subtask = subtaskAt(i);
      const parts = [`${(i / p.fps).toFixed(2)} s`];
      if (p.progress) parts.push(`progress <b>${p.progress[i].toFixed(2)}</b>`);
      if (p.true_progress) parts.push(`true ${p.true_progress[i].toFixed(2)}`);
      if (p.success_prob) parts.push(`success ${p.success_prob[i].toFixed(2)}`);
      if (subtask >= 0) parts.push(`subtask: ${escape(p.subtasks[subtask].name)}`);
      readout.innerHTML = parts.join(" &nbsp;·&nbsp; ");
      if (!geometry) return;
      const { x, y } = geometry, line = box.querySelector(".cursor"), dot = box.querySelector(".dot");
      line.setAttribute("x1", x(i)); line.setAttribute("x2", x(i));
      if (p.progress) { dot.setAttribute("cx", x(i)); dot.setAttribute("cy", y(p.progress[i])); }
    };
    const seek = (i) => {
      const at = Math.min(Math.max(i, 0), length - 1);
      video.currentTime = (at + 0.5) / p.fps;
      show(at);
    };
    onResize(box, (width) => {
      const height = 184, left = 30, right = 6, top = 22, bottom = 22;
      const x = (i) => left + (width - left - right) * (length > 1 ? i / (length - 1) : 0.5);
      const y = (v) => top + (height - top - bottom) * (1 - v);
      geometry = { x, y, left, right, width };
      const bands = p.subtasks.map((s, i) => {
        const from = x(s.start), to = x(Math.min(s.end, length - 1)), room = to - from;
        const name = s.name.length * 6.3 < room ? s.name : room > 15 ? i + 1 : "";
        return `<g><title>${escape(s.name)}</title>${i % 2 ? "" : `<rect class="odd" x="${from}" y="${top - 18}" width="${room}" height="${height - top - bottom + 18}" rx="4"/>`}
          <text class="step" x="${(from + to) / 2}" y="${top - 5}" text-anchor="middle">${escape(name)}</text></g>`;
      }).join("");
      const across = [0, 0.5, 1].map((t) => `<line class="grid" x1="${left}" x2="${width - right}" y1="${y(t)}" y2="${y(t)}"/>
        <text x="${left - 7}" y="${y(t) + 4}" text-anchor="end">${t}</text>`).join("");
      const seconds = (length - 1) / p.fps;
      const along = ticks(0, seconds, 6).map((t) => `<text x="${x(t * p.fps)}" y="${height - 5}" text-anchor="middle">${t} s</text>`).join("");
      box.innerHTML = `<svg height="${height}">${bands}${across}${along}
        ${p.success_prob ? `<path class="path done" d="${path(p.success_prob, x, y)}"/>` : ""}
        ${p.true_progress ? `<path class="path truth" d="${path(p.true_progress, x, y)}"/>` : ""}
        ${p.progress ? `<path class="path" stroke="var(--model)" d="${path(p.progress, x, y)}"/>` : ""}
        <line class="cursor" y1="${top}" y2="${height - bottom}"/>
        ${p.progress ? `<circle class="dot" r="5" fill="var(--model)"/>` : ""}</svg>`;
      show(frame < 0 ? length - 1 : frame);
    });

    const frameAt = (event) => {
      const share = (event.clientX - box.getBoundingClientRect().left - geometry.left) / (geometry.width - geometry.left - geometry.right);
      return Math.round(Math.min(Math.max(share, 0), 1) * (length - 1));
    };
    box.onpointerdown = (event) => { video.pause(); box.setPointerCapture(event.pointerId); seek(frameAt(event)); };
    box.onpointermove = (event) => { if (event.buttons) seek(frameAt(event)); };
    box.onkeydown = (event) => {
      const jump = { ArrowLeft: -1, ArrowRight: 1, PageDown: -10, PageUp: 10, Home: -length, End: length }[event.key];
      if (jump === undefined) return;
      event.preventDefault();
      video.pause();
      seek(frame + jump);
    };
    const toggle = () => { if (video.paused) video.play(); else video.pause(); };
    play.onclick = video.onclick = toggle;
    video.onplay = () => { play.innerHTML = PAUSE; screen.classList.add("playing"); follow(); };
    video.onpause = () => { play.innerHTML = PLAY; screen.classList.remove("playing"); };
    video.onseeked = () => { if (!video.paused) return; show(Math.min(Math.floor(video.currentTime * p.fps + 1e-3), length - 1)); };
    const follow = () => {
      if (video.paused) return;
      show(Math.min(Math.floor(video.currentTime * p.fps + 1e-3), length - 1));
      requestAnimationFrame(follow);
    };

    // Clips are decoded only near the viewport: a hundred open decoders would stall the page.
    new IntersectionObserver((entries, observer) => {
      if (!entries.some((e) => e.isIntersecting)) return;
      observer.disconnect();
      const bytes = Uint8Array.from(atob(p.video), (c) => c.charCodeAt(0));
      video.onloadeddata = () => { video.onloadeddata = null; seek(index === 0 ? 0 : length - 1); if (index === 0) video.play().catch(() => {}); };
      video.src = URL.createObjectURL(new Blob([bytes], { type: "video/mp4" }));
    }, { rootMargin: "400px" }).observe(card);
  }

  function panels() {
    const part = section("Episodes", "Click or drag in a chart to seek, arrow keys to go frame by frame. The prediction at a frame depends on past frames only.");
    const filters = add(part, "div", "filters");
    data.episodes.forEach((p, i) => panel(part, p, i));
    const cards = [...part.querySelectorAll(".panel")];
    const kinds = [...new Set(cards.map((c) => c.dataset.outcome))].filter(Boolean);
    if (kinds.length < 2) { filters.remove(); return; }
    for (const kind of ["all", ...kinds]) {
      const button = add(filters, "button", "", words(kind));
      button.setAttribute("aria-pressed", kind === "all");
      button.onclick = () => {
        for (const other of filters.children) other.setAttribute("aria-pressed", other === button);
        for (const card of cards) card.hidden = kind !== "all" && card.dataset.outcome !== kind;
      };
    }
  }

  function contactSheet() {
    const image = add(section("Images", "First, middle and last frame of some episodes, as every command reads them."), "img", "sheet card");
    image.alt = "First, middle and last frame of some episodes";
    image.src = `data:image/png;base64,${data.contact_sheet}`;
  }

  function details() {
    const box = add(page, "details", "", "<summary>Details</summary>");
    const rows = Object.entries(data.details).map(([k, v]) => `<tr><td>${escape(k)}</td><td class="number">${escape(v)}</td></tr>`);
    add(box, "table", "", rows.join(""));
  }

  page.textContent = "";
  add(page, "h1", "", escape(data.title));
  if (data.subtitle) add(page, "p", "lead", escape(data.subtitle));
  if (data.key_metrics.length) keyMetrics();
  if (data.cases.length) cases();
  if (data.success_rates.length) success();
  if (data.charts.length) curves();
  if (data.tables.length) tables();
  if (data.contact_sheet) contactSheet();
  if (data.episodes.length) panels();
  if (Object.keys(data.details).length) details();
})();
