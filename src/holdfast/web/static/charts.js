// Bars, cells and lanes. Data in, SVG out: nothing here knows the page, so reports use the same.

import { s } from "./dom.js";

/** The hatchings that all charts of a page refer to; add it to the page once. */
export function hatchings() {
  const pattern = (id, kind) =>
    s(
      "pattern",
      { id, width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
      s("rect", { width: 6, height: 6, class: `fill-${kind}-soft` }),
      s("rect", { width: 2, height: 6, class: `fill-${kind}` }),
    );
  return s(
    "svg",
    { width: 0, height: 0, "aria-hidden": "true", class: "defs" },
    s("defs", null, pattern("hatch-reserved", "reserved"), pattern("hatch-held", "held"), pattern("hatch-waiting", "pending")),
  );
}

/**
 * A capacity bar. `parts` are {value, kind, title, edges}: kind is pods, used, reserved or held; edges
 * divide a part, for single pods. What is over `total` widens the scale and is marked.
 */
export function bar(parts, total) {
  const sum = parts.reduce((all, part) => all + part.value, 0);
  const scale = Math.max(total, sum, 1e-9);
  const svg = s("svg", { class: "bar", "aria-hidden": "true" }, s("rect", { class: "track", width: "100%", height: "100%" }));
  let at = 0;
  for (const part of parts) {
    if (part.value <= 0) continue;
    const x = (100 * at) / scale;
    const width = (100 * part.value) / scale;
    svg.append(
      s("rect", { x: `${x}%`, width: `${width}%`, height: "100%", class: `part ${part.kind}` }, part.title && s("title", null, part.title)),
    );
    for (const edge of visible(part.edges || [], part.value, scale)) {
      svg.append(s("line", { x1: `${(100 * (at + edge)) / scale}%`, x2: `${(100 * (at + edge)) / scale}%`, y1: 0, y2: "100%", class: "edge" }));
    }
    at += part.value;
  }
  if (sum > total && total > 0) {
    svg.append(s("line", { x1: `${(100 * total) / scale}%`, x2: `${(100 * total) / scale}%`, y1: 0, y2: "100%", class: "over" }));
  }
  return svg;
}

/** The edges of what is wide enough to be told apart: many small pods side by side would look like a gap. */
function visible(edges, value, scale) {
  const least = scale / 50;
  const ends = [0, ...edges, value];
  const isWide = (index) => ends[index] - ends[index - 1] >= least;
  return edges.filter((_, index) => isWide(index + 1) || isWide(index + 2));
}

/**
 * Devices: one cell each, with its parts as in bars, from the bottom: {value, kind}, in percent. What is
 * over the whole device, because a reservation waits for what pods still use, is a line below the cell.
 */
export function cells(devices, size, perRow) {
  const step = size + 2;
  const [columns, rows] = [Math.min(devices.length, perRow), Math.ceil(devices.length / perRow)];
  const svg = s("svg", { class: "cells", width: columns * step - 2, height: rows * (step + 3), "aria-hidden": "true" });
  devices.forEach((device, index) => {
    const x = (index % perRow) * step;
    const y = Math.floor(index / perRow) * (step + 3);
    const cell = s("g", null, s("title", null, device.title), s("rect", { x, y, width: size, height: size, rx: 2, class: device.healthy ? "cell" : "cell broken" }));
    let at = 0;
    for (const { value, kind } of device.parts) {
      const part = Math.min(value, 100 - at);
      at += part;
      if (part > 0) cell.append(s("rect", { x, y: y + (size * (100 - at)) / 100, width: size, height: (size * part) / 100, rx: 2, class: `part ${kind}` }));
      if (value > part) cell.append(s("rect", { x, y: y + size + 1, width: size, height: 3, rx: 1, class: `next ${kind}` }));
    }
    svg.append(cell);
  });
  return svg;
}

/**
 * The life of a reservation: stretches {from, to, kind}, in seconds; `to` is null where the end is open.
 * Kinds: pending, waiting, available, planned, past. A reservation that starts later has one stretch,
 * planned from its start on.
 */
export function life(reservation, now) {
  const r = reservation;
  const over = r.ended || r.deleted || null;
  const live = over === null;
  const stretches = [];
  if (live && r.state) return [{ from: Math.max(r.starts, now), to: r.expires || null, kind: "planned" }];
  const begun = r.starts ? Math.min(Math.max(r.created, r.starts), over ?? now) : r.created;
  const placed = r.scheduled ?? (r.phase === "Pending" || !live ? null : begun);
  const until = over ?? now;
  if (placed === null) {
    stretches.push({ from: begun, to: until, kind: "pending" });
  } else {
    if (placed > begun) stretches.push({ from: begun, to: placed, kind: "pending" });
    const opened = r.phase === "Waiting" && live ? until : (r.available ?? placed);
    if (opened > placed) stretches.push({ from: placed, to: opened, kind: "waiting" });
    if (until > opened) stretches.push({ from: opened, to: until, kind: live ? "available" : "past" });
  }
  if (live && r.phase !== "Succeeded" && r.phase !== "Failed") {
    const opens = r.phase === "Waiting" && r.expected > now ? r.expected : now;
    if (opens > now) stretches.push({ from: now, to: opens, kind: "pending" });
    if (!r.expires) stretches.push({ from: opens, to: null, kind: "planned" });
    else if (r.expires > opens) stretches.push({ from: opens, to: r.expires, kind: "planned" });
  }
  return stretches;
}

/** One lane of a Gantt chart over the range {from, to}. */
export function lane(stretches, range, now, { share = 0, marks = [], height = 18, hold = false } = {}) {
  const width = range.to - range.from;
  const at = (time) => (100 * (Math.min(Math.max(time, range.from), range.to) - range.from)) / width;
  const svg = s("svg", { class: hold ? "lane hold" : "lane", height, "aria-hidden": "true" });
  for (const each of stretches) {
    const end = each.to === null ? range.to : each.to;
    if (end < range.from || each.from > range.to) continue;
    const x = at(each.from);
    const w = Math.max(at(end) - x, 0.25);
    const thin = each.kind === "pending";
    svg.append(s("rect", { x: `${x}%`, width: `${w}%`, y: thin ? height / 2 - 2 : 3, height: thin ? 4 : height - 6, rx: 2, class: `stretch ${each.kind}` }));
    if (each.kind === "available" && share > 0) {
      const inner = (height - 6) * Math.min(share, 1);
      svg.append(s("rect", { x: `${x}%`, width: `${w}%`, y: height - 3 - inner, height: inner, rx: 1, class: "stretch allocated" }));
    }
  }
  for (const mark of marks) {
    if (mark.time < range.from || mark.time > range.to) continue;
    svg.append(s("circle", { cx: `${at(mark.time)}%`, cy: height / 2, r: 4, class: `mark ${mark.kind}` }, s("title", null, mark.title)));
  }
  if (now >= range.from && now <= range.to) {
    svg.append(s("line", { x1: `${at(now)}%`, x2: `${at(now)}%`, y1: 0, y2: height, class: "now" }));
  }
  return svg;
}

const STEPS = [60, 300, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800];

/** The axis of a Gantt chart: about `wanted` ticks at round local times. */
export function axis(range, now, wanted = 6, height = 22) {
  const width = range.to - range.from;
  const step = STEPS.find((each) => width / each <= wanted) || STEPS[STEPS.length - 1];
  const shift = new Date(range.from * 1000).getTimezoneOffset() * 60;
  const svg = s("svg", { class: "axis", height, "aria-hidden": "true" });
  const at = (time) => (100 * (time - range.from)) / width;
  for (let time = Math.ceil((range.from - shift) / step) * step + shift; time < range.to; time += step) {
    const x = at(time);
    svg.append(s("line", { x1: `${x}%`, x2: `${x}%`, y1: height - 5, y2: height, class: "tick" }));
    if (x > 3 && x < 97) svg.append(s("text", { x: `${x}%`, y: height - 8, class: "tick-text" }, tick(time, step)));
  }
  if (now >= range.from && now <= range.to) {
    svg.append(s("line", { x1: `${at(now)}%`, x2: `${at(now)}%`, y1: height - 6, y2: height, class: "now" }));
  }
  return svg;
}

function tick(time, step) {
  const date = new Date(time * 1000);
  const midnight = date.getHours() === 0 && date.getMinutes() === 0;
  if (step >= 86400 || midnight) return date.toLocaleDateString("en-GB", { day: "numeric", month: "short" });
  return date.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
}
