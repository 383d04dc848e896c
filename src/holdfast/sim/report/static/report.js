// The views of a moment: a slider, a cursor in every plot over time, nodes, reservations, pending pods.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const LEFT = 9, RIGHT = 98; // of a plot, in percent
  const MOST_CARDS = 60, MOST_ROWS = 50, LIVE = new Set(["Available", "Waiting"]);
  const one = (id) => document.getElementById(id);
  const slider = one("time");
  const steps = Number(slider.max);
  let moment = data.end, chosen = "", filter = "";

  function h(tag, attributes, ...children) {
    const svg = ["svg", "rect", "line", "title"].includes(tag);
    const element = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) element.setAttribute(name, value);
    for (const child of children) if (child !== null && child !== undefined) element.append(child);
    return element;
  }

  // Amounts and times

  function amount(resource, value) {
    if (resource === "cpu") return decimal(value / 1000);
    if (resource !== "memory") return decimal(value);
    const units = ["", "Ki", "Mi", "Gi", "Ti", "Pi"];
    let unit = 0;
    while (value >= 1024 && unit < units.length - 1) { value /= 1024; unit += 1; }
    return decimal(value) + units[unit];
  }

  function decimal(value) {
    return value >= 100 || Number.isInteger(value) ? String(Math.round(value)) : String(Number(value.toPrecision(3)));
  }

  function duration(seconds) {
    if (seconds < 60) return `${Number(seconds.toFixed(3))}s`;
    const parts = [[86400, "d"], [3600, "h"], [60, "m"], [1, "s"]];
    let rest = Math.round(seconds), text = "";
    for (const [size, unit] of parts) {
      const count = Math.floor(rest / size);
      rest -= count * size;
      if (count) text += (text ? " " : "") + count + unit;
    }
    return text;
  }

  // What was at a moment

  function at(times, t) {
    let low = 0, high = times.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (times[middle] <= t) low = middle + 1; else high = middle;
    }
    return low - 1;
  }

  function total(name, i) {
    return (data.series[name] || [])[i] || 0;
  }

  function stateOfNodes(t) {
    const nodes = data.nodes.map((name, i) => ({ name, i, offer: null, pods: [], held: [], used: [0, 0, 0], kept: [0, 0, 0] }));
    for (const [when, node, ...offer] of data.offers) {
      if (when > t) break;
      nodes[node].offer = offer.length ? offer : null;
    }
    const [pods, places, starts, ends, shapes, through] = data.placed.length ? data.placed : [[], [], [], [], [], []];
    for (let i = 0; i < pods.length; i += 1) {
      if (starts[i] > t || (ends[i] >= 0 && ends[i] <= t)) continue;
      const node = nodes[places[i]], shape = data.shapes[shapes[i]];
      node.pods.push({ pod: pods[i], shape, through: through[i] });
      for (let r = 0; r < 3; r += 1) node.used[r] += shape[r];
    }
    for (const reservation of data.reservations) {
      const [, , place, , history] = reservation;
      const step = history[at(history.map((each) => each[0]), t)];
      if (place < 0 || !step || !LIVE.has(step[1])) continue;
      const node = nodes[place];
      node.held.push({ reservation, step });
      for (let r = 0; r < 3; r += 1) node.kept[r] += step[5 + r];
    }
    return nodes;
  }

  // Views

  function bar(node, r) {
    const resource = data.resources[r], scale = Math.max(node.offer[r], node.used[r] + node.kept[r], 1e-9);
    const svg = h("svg", { class: "bar", "aria-hidden": "true" }, h("rect", { class: "track", width: "100%", height: "100%" }));
    let x = 0;
    const part = (value, style, text) => {
      if (value <= 0) return;
      const width = (100 * value) / scale;
      svg.append(h("rect", { class: style, x: `${x}%`, width: `${width}%`, height: "100%" }, h("title", null, text)));
      x += width;
      svg.append(h("line", { class: "edge", x1: `${x}%`, x2: `${x}%`, y1: 0, y2: "100%" }));
    };
    for (const { pod, shape, through } of node.pods) {
      const by = through >= 0 ? ` through ${data.usedReservations[through]}` : "";
      part(shape[r], "pods", `${data.pods[pod]}: ${amount(resource, shape[r])} ${resource}${by}`);
    }
    for (const { reservation, step } of node.held) {
      part(step[5 + r], `held ${data.kinds[reservation[1]]}`, `${reservation[0]} holds ${amount(resource, step[5 + r])} ${resource}`);
    }
    return svg;
  }

  function gpuCells(node) {
    const box = h("div", { class: "cells" });
    const count = Math.min(Math.ceil(node.offer[2]), 64);
    for (let i = 0; i < count; i += 1) {
      const used = Math.min(Math.max(node.used[2] - i, 0), 1);
      const kept = Math.min(Math.max(node.used[2] + node.kept[2] - i, 0), 1) - used;
      const kind = node.held.length ? data.kinds[node.held[0].reservation[1]] : "user";
      box.append(h("svg", { viewBox: "0 0 13 13", "aria-hidden": "true" },
        h("rect", { class: "track", width: 13, height: 13, rx: 2 }),
        used > 0 ? h("rect", { class: "pods", y: 13 - 13 * used, width: 13, height: 13 * used, rx: 2 }) : null,
        kept > 0 ? h("rect", { class: `held ${kind}`, y: 13 - 13 * (used + kept), width: 13, height: 13 * kept }) : null));
    }
    return box;
  }

  function card(node) {
    const rows = h("dl");
    data.resources.forEach((resource, r) => {
      if (!node.offer[r] && !node.used[r]) return;
      const held = node.kept[r] ? ` + ${amount(resource, node.kept[r])} held` : "";
      rows.append(h("dt", null, resource),
        h("dd", null, `${amount(resource, node.used[r])}${held} / ${amount(resource, node.offer[r])}`),
        h("dd", { class: "drawn" }, r === 2 ? gpuCells(node) : bar(node, r)));
    });
    const count = `${node.pods.length} pod${node.pods.length === 1 ? "" : "s"}`;
    return h("article", { class: "node" }, h("h3", null, h("b", { title: node.name }, node.name), h("span", null, count)), rows);
  }

  function level(node) {
    if (!node.offer) return 0;
    const r = node.offer[0] ? 0 : node.offer[1] ? 1 : 2;
    return node.offer[r] ? Math.min(10, node.used[r] ? Math.max(1, Math.round((10 * node.used[r]) / node.offer[r])) : 0) : 0;
  }

  function showNodes(nodes) {
    const present = nodes.filter((node) => node.offer);
    const overview = one("overview");
    if (present.length > MOST_CARDS) {
      const made = present.map((node) => {
        const text = `${node.name}: ${node.pods.length} pods, ${10 * level(node)}% requested${node.held.length ? ", with reservations" : ""}`;
        const cell = h("button", { type: "button", title: text, "aria-label": text, tabindex: -1 },
          h("svg", { width: 14, height: 14 }, h("rect", { class: `heat${level(node)}`, width: 14, height: 14 }),
            node.held.length ? h("rect", { class: `held ${data.kinds[node.held[0].reservation[1]]}`, y: 9, width: 14, height: 5 }) : null));
        cell.addEventListener("click", () => { one("filter").value = filter = node.name; show(); });
        return cell;
      });
      overview.replaceChildren(...made);
    } else overview.replaceChildren();
    const matching = present.filter((node) => !filter || node.name.includes(filter));
    one("nodes").replaceChildren(...matching.slice(0, MOST_CARDS).map(card));
    const more = matching.length - MOST_CARDS;
    one("node-count").textContent = `${matching.length} of ${present.length} nodes` + (more > 0 ? `, the first ${MOST_CARDS} in detail: narrow them by name` : "");
  }

  function row(...cells) {
    return h("tr", null, ...cells.map((cell, i) => h("td", i ? { class: "w" } : {}, cell)));
  }

  function showReservations(t) {
    const rows = [];
    let count = 0;
    for (const [name, kind, place, , history] of data.reservations) {
      const step = history[at(history.map((each) => each[0]), t)];
      if (!step || (step[1] !== "Pending" && !LIVE.has(step[1]))) continue;
      count += 1;
      if (rows.length >= MOST_ROWS) continue;
      const describe = (from) => data.resources.map((resource, r) => (step[from + r] ? `${amount(resource, step[from + r])} ${resource}` : "")).filter(Boolean).join(", ") || "0";
      rows.push(row(name, data.kinds[kind], step[1], place >= 0 && step[1] !== "Pending" ? data.nodes[place] : "", describe(2), describe(5)));
    }
    one("reservations-now").replaceChildren(...rows);
    one("reservation-count").textContent = count ? `${count} that have not ended` + (count > rows.length ? `, the first ${rows.length}` : "") : "No reservations at this moment.";
    one("reservations-table").hidden = !count;
  }

  function showPending(t) {
    const [pods, starts, ends, why] = data.pending.length ? data.pending : [[], [], [], []];
    const rows = [], reasons = new Map();
    let count = 0;
    for (let i = 0; i < pods.length; i += 1) {
      if (starts[i] > t || ends[i] <= t) continue;
      count += 1;
      const reason = data.reasons[why[i]] || "not tried yet, or gated";
      reasons.set(reason, (reasons.get(reason) || 0) + 1);
      if (rows.length < MOST_ROWS) rows.push(row(data.pods[pods[i]], reason));
    }
    one("pending-now").replaceChildren(...rows);
    const sums = [...reasons].sort((a, b) => b[1] - a[1]).slice(0, 4).map(([reason, n]) => `${n} × ${reason}`).join("; ");
    one("pending-count").textContent = count ? `${count} pending: ${sums}` + (count > rows.length ? `. The first ${rows.length}:` : "") : "No pods are pending at this moment.";
    one("pending-table").hidden = !count;
  }

  function showTotals(t) {
    const i = Math.max(0, at(data.series.t, t));
    const parts = [`${Math.round(total("pods running", i))} pods running`, `${Math.round(total("pods pending", i))} pending`, `${Math.round(total("nodes", i))} nodes`];
    for (const resource of data.resources) {
      const capacity = total(`${resource} capacity`, i);
      const isAsked = [`${resource} requested`, ...data.kinds.map((kind) => `${resource} held ${kind}`)].some((name) => data.series[name]);
      if (!capacity || !isAsked) continue;
      const held = data.kinds.reduce((sum, kind) => sum + total(`${resource} held ${kind}`, i), 0);
      const percent = (value) => `${Math.round((100 * value) / capacity)}%`;
      parts.push(`${resource} ${percent(total(`${resource} requested`, i))} requested` + (held ? `, ${percent(held)} held unused` : ""));
    }
    one("totals").textContent = parts.join(" · ");
  }

  function showCursor(t) {
    const x = `${LEFT + ((RIGHT - LEFT) * t) / (data.end || 1)}%`;
    for (const plot of document.querySelectorAll("svg.timed")) {
      let cursor = plot.querySelector(".cursor");
      if (!cursor) { cursor = h("line", { class: "cursor", y1: 0, y2: "100%" }); plot.append(cursor); }
      cursor.setAttribute("x1", x);
      cursor.setAttribute("x2", x);
    }
  }

  function show() {
    one("now").textContent = duration(moment);
    slider.setAttribute("aria-valuetext", duration(moment));
    showCursor(moment);
    showTotals(moment);
    showNodes(stateOfNodes(moment));
    showReservations(moment);
    showPending(moment);
  }

  let due = false;
  function go(t) {
    moment = Math.min(Math.max(t, 0), data.end);
    slider.value = data.end ? Math.round((steps * moment) / data.end) : 0;
    if (due) return;
    due = true;
    requestAnimationFrame(() => { due = false; show(); });
  }

  slider.addEventListener("input", () => go((data.end * Number(slider.value)) / steps));
  one("filter").addEventListener("input", (event) => { filter = event.target.value; show(); });
  for (const plot of document.querySelectorAll("svg.timed")) {
    const follow = (event) => {
      const box = plot.getBoundingClientRect();
      const share = ((100 * (event.clientX - box.left)) / box.width - LEFT) / (RIGHT - LEFT);
      if (share >= -0.02 && share <= 1.02) go(share * data.end);
    };
    plot.addEventListener("pointermove", (event) => { if (event.buttons || event.pointerType === "mouse") follow(event); });
    plot.addEventListener("pointerdown", follow);
  }
  // The busiest moment says more than the end, when most pods may have left.
  const running = data.series["pods running"] || [0];
  const pending = data.series["pods pending"] || [];
  let best = 0;
  running.forEach((value, i) => { if (value + (pending[i] || 0) > running[best] + (pending[best] || 0)) best = i; });
  for (const element of document.querySelectorAll("[hidden].live")) element.hidden = false;
  moment = data.series.t.length ? data.series.t[best] : 0;
  slider.value = data.end ? Math.round((steps * moment) / data.end) : 0;
  show();
})();
