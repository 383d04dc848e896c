// The nodes: a density strip of all, and a list with bars.

import { bar, cells } from "./charts.js";
import { h, setText } from "./dom.js";
import { amount, byName, count, isClaimed, percent, short, title } from "./format.js";
import { List } from "./list.js";
import { CORDONED, NOT_READY, NO_OBJECT, TAINTED } from "./model.js";

const DEVICE = /(^|[./-])(gpu|npu|tpu|dcu|mlu|xpu|neuron\w*|gaudi)$/i;
const STRIP_FROM = 40;
const ROOMY = 12;
const CELLS = { size: 12, perRow: 8, most: 16 };
export const LARGE_CELLS = { size: 16, perRow: 16, most: 64 };
const RESORT_MS = 1500;

export const isDevice = (resource) => isClaimed(resource) || (DEVICE.test(resource) && resource.includes("/"));

/** The parts of a node's bar for one resource. */
export function parts(node, index, resource) {
  const plain = node.requested[index] - node.used[index];
  const text = (value, what) => `${amount(resource, value)} ${what}`;
  const found = [
    { value: plain, kind: "pods", title: text(plain, "requested by pods") },
    { value: node.used[index], kind: "used", title: text(node.used[index], "used by owners of reservations") },
    { value: node.reserved[index], kind: "reserved", title: text(node.reserved[index], "reserved") },
    { value: node.held[index], kind: "held", title: text(node.held[index], "held") },
  ];
  if (node.pods) {
    for (const [part, wanted] of [[found[0], false], [found[1], true]]) {
      let at = 0;
      part.edges = [];
      for (const [, requests, reservation] of node.pods) {
        if (Boolean(reservation) === wanted && requests[index]) {
          at += requests[index];
          part.edges.push(at);
        }
      }
      part.edges = part.edges.filter((edge) => edge < part.value - 1e-6);
    }
  }
  return found;
}

/** The devices of a node: those of its Device object, or as many as it has of the resource. */
export function devices(node, index, resource) {
  if (node.gpus.length && !(resource && isClaimed(resource))) return node.gpus.map(([used, reserved, held, state]) => device({ pods: used, reserved, held }, state > 0));
  const total = node.allocatable[index];
  const found = Array.from({ length: total }, () => ({ pods: 0, used: 0, reserved: 0, held: 0 }));
  const kinds = { pods: node.requested[index] - node.used[index], used: node.used[index], reserved: node.reserved[index], held: node.held[index] };
  // What is kept beyond what the node has is still in use: the last ones of those, whichever they are.
  const inUse = Math.min(Math.max(node.requested[index], 1), total);
  let at = 0;
  for (const [kind, number] of Object.entries(kinds)) {
    for (let one = at; one < at + number; one += 1) found[one < total ? one : inUse - 1 - ((one - total) % inUse)][kind] += 100;
    at += number;
  }
  return found.map((parts) => device(parts, true));
}

const IN_DEVICE = { pods: "used by pods", used: "used by owners of a reservation", reserved: "reserved", held: "held" };

function device(kinds, healthy) {
  const parts = Object.entries(kinds).map(([kind, value]) => ({ kind, value })).filter(({ value }) => value > 0);
  const texts = [!healthy && "unhealthy", ...parts.map(({ kind, value }) => (value < 100 ? `${value}% ${IN_DEVICE[kind]}` : IN_DEVICE[kind]))].filter(Boolean);
  return { parts, healthy, title: texts.join(", ") || "free" };
}

/** Cells of the devices of a node; null if there are too many of the resource, for which a bar is better. */
export function deviceCells(node, index, resource, { size, perRow, most }) {
  const number = node.gpus.length && !(resource && isClaimed(resource)) ? node.gpus.length : node.allocatable[index];
  return number > most && index >= 0 ? null : cells(devices(node, index, resource), size, perRow);
}

/** `3 free` and `of 8 devices, 4 in use, 1 held`. One that is partly in use and partly held counts for both. */
export function deviceTexts(found) {
  const having = (...kinds) => found.filter(({ parts }) => parts.some(({ kind }) => kinds.includes(kind))).length;
  const numbers = [[having("pods", "used"), "in use"], [having("reserved"), "reserved"], [having("held"), "held"], [found.filter(({ healthy }) => !healthy).length, "unhealthy"]];
  const free = found.filter(({ healthy, parts }) => healthy && !parts.length).length;
  return [`${free} free`, [`of ${count(found.length, "device")}`, ...numbers.filter(([number]) => number).map(([number, what]) => `${number} ${what}`)].join(", ")];
}

export const claimed = (node, index) => node.requested[index] + node.reserved[index] + node.held[index];
/** `2 reserved` and `5 held`, of those that are not 0. */
export const kept = (node, index, resource) => ["reserved", "held"].filter((what) => node[what][index]).map((what) => `${amount(resource, node[what][index])} ${what}`);
const share = (node, index) => (node.allocatable[index] ? claimed(node, index) / node.allocatable[index] : 0);

export function badges(node) {
  const found = [];
  if (node.flags & NO_OBJECT) found.push(["no node object", "bad"]);
  if (node.flags & NOT_READY) found.push(["not ready", "bad"]);
  if (node.flags & CORDONED) found.push(["cordoned", "warn"]);
  if (node.flags & TAINTED) found.push(["tainted", "calm"]);
  return found.map(([text, kind]) => h("span", { class: `badge ${kind}`, title: text === "tainted" ? node.taints : null }, text));
}

export class NodesView {
  constructor(model, app) {
    Object.assign(this, { model, app });
    this.sort = "name";
    this.filter = "";
    this.sortedAt = 0;
    this.list = new List({
      label: "Nodes",
      name: "nodes",
      columns: [{ key: "name", title: "Node", sorts: true }],
      rowHeight: 40,
      narrowHeight: 84,
      key: (node) => String(node.id),
      render: (node) => this.cells(node),
      open: (node) => app.go("nodes", [node.name]),
      sorted: (key) => app.setOption("sort", this.sort === key ? `-${key}` : this.sort === `-${key}` ? "" : key),
      empty: () => (this.filter ? ["No node matches the filter.", ...filterProblems(this.filter, this.model)].join(" ") : "The cluster has no nodes."),
    });
    this.strip = h("canvas", { class: "strip", role: "img", hidden: true });
    this.strip.addEventListener("click", (event) => this.stripClicked(event));
    this.strip.addEventListener("mousemove", (event) => {
      const node = this.stripNode(event);
      this.strip.title = node ? `${node.name}: CPU ${percent(claimed(node, 0), node.allocatable[0])}, memory ${percent(claimed(node, 1), node.allocatable[1])}` : "";
    });
    this.note = h("p", { class: "note", role: "status" });
    this.element = h("section", { class: "view", "aria-label": "Nodes" }, this.strip, this.note, this.list.box);
    this.filterHelp = "name, label or taint key=value, is:cordoned, is:tainted, has:reservation, has:hold, has:gpu, cpu>80";
    new ResizeObserver(() => this.drawStrip()).observe(this.element);
  }

  layout() {
    const { resources } = this.model;
    const anyGpus = [...this.model.nodes.values()].some((node) => node.gpus.length);
    this.device = resources.findIndex((name) => isDevice(name) && !(anyGpus && isClaimed(name)));
    this.hasDevices = this.device >= 0 || anyGpus;
    this.others = resources.map((name, index) => [name, index]).filter(([name, index]) => index > 2 && index !== this.device && (isClaimed(name) || !(isDevice(name) || (anyGpus && /gpu|rdma|fpga/.test(name))))).slice(0, 2);
    const columns = [
      { key: "name", title: "Node", sorts: true, class: "name" },
      { key: "cpu", title: "CPU", sorts: true, class: "bars" },
      { key: "memory", title: "Memory", sorts: true, class: "bars" },
    ];
    if (this.hasDevices) columns.push({ key: "gpu", title: this.device >= 0 && isClaimed(resources[this.device]) ? "Devices" : "GPUs", sorts: true, class: "gpus" });
    for (const [name] of this.others) columns.push({ key: name, title: title(name), sorts: true, class: "bars" });
    columns.push({ key: "pods", title: "Pods", sorts: true, class: "number" });
    const tracks = ["minmax(8rem, 1.2fr)", "minmax(6rem, 2fr)", "minmax(6rem, 2fr)"];
    if (this.hasDevices) tracks.push("minmax(10.5rem, 1.2fr)");
    for (let index = 0; index < this.others.length; index += 1) tracks.push("minmax(6rem, 1fr)");
    tracks.push("4.5rem");
    this.list.element.style.setProperty("--columns", tracks.join(" "));
    this.list.setColumns(columns, this.sort);
    const roomy = this.model.nodes.size <= ROOMY;
    this.list.element.classList.toggle("roomy", roomy);
    // Where the list is narrow, devices and other resources stand two in a line below CPU and memory.
    this.list.element.classList.toggle("more", this.others.length > 0);
    const bars = this.others.length ? Math.ceil((this.others.length + (this.hasDevices ? 1 : 0)) / 2) : 0;
    const below = bars ? bars * (roomy ? 43 : 33) : this.hasDevices ? 28 : 0;
    this.list.leastWidth = this.others.length ? 660 + 112 * this.others.length : 0;
    this.list.setHeights(roomy ? 54 : 40, 58 + below + (roomy ? 12 : 0));
  }

  setOptions(options, chosen) {
    const changed = this.sort !== (options.get("sort") || "name") || this.filter !== (options.get("filter") || "");
    this.sort = options.get("sort") || "name";
    this.filter = options.get("filter") || "";
    this.chosenName = chosen || null;
    if (changed || !this.columnsFor) {
      this.columnsFor = `${this.model.resources.join()} ${this.model.nodes.size <= ROOMY}`;
      this.layout();
      this.refresh(null, true);
    }
    this.choose();
  }

  choose() {
    const node = this.chosenName ? this.model.nodeNamed(this.chosenName) : null;
    this.list.choose(node ? String(node.id) : null);
  }

  shown() {
    this.layout();
    this.refresh(null, true);
    this.choose();
    if (this.chosenName) this.list.scrollTo(this.list.chosen);
  }

  changed(changes) {
    const columnsFor = `${this.model.resources.join()} ${this.model.nodes.size <= ROOMY}`;
    if (this.columnsFor !== columnsFor) {
      this.columnsFor = columnsFor;
      this.layout();
    }
    if (changes.nodes) this.refresh(changes.nodes, false);
  }

  refresh(ids, now) {
    const before = this.items || [];
    const time = performance.now();
    if (now || time - this.sortedAt > RESORT_MS || !before.length) {
      this.sortedAt = time;
      this.items = this.chosenNodes();
    } else {
      // Rows stay where they are for a moment, so that one can read them.
      this.items = before.map((node) => this.model.nodes.get(node.id)).filter(Boolean);
      clearTimeout(this.later);
      this.later = setTimeout(() => this.element.isConnected && this.refresh(new Set(), true), RESORT_MS);
    }
    this.list.show(this.items, ids === null ? null : new Set([...ids].map(String)));
    const all = this.model.nodes.size;
    setText(this.note, this.filter ? `${this.items.length.toLocaleString("en")} of ${count(all, "node")} match` : "");
    this.note.hidden = !this.filter;
    this.drawStrip();
  }

  chosenNodes() {
    const test = compileFilter(this.filter, this.model);
    const found = [...this.model.nodes.values()].filter(test);
    const down = this.sort.startsWith("-");
    const key = down ? this.sort.slice(1) : this.sort;
    const value = this.value(key);
    found.sort((one, other) => {
      const order = value ? value(one) - value(other) : byName(one.name, other.name);
      return (down ? -order : order) || byName(one.name, other.name);
    });
    return found;
  }

  value(key) {
    const index = this.model.resources.indexOf(key);
    if (key === "gpu") {
      return (node) => (node.gpus.length ? node.gpus.reduce((sum, [used, reserved, held]) => sum + used + reserved + held, 0) / node.gpus.length : this.device >= 0 ? share(node, this.device) : 0);
    }
    if (key === "reserved") return (node) => node.reserved[0] + node.held[0];
    return index >= 0 ? (node) => share(node, index) : null;
  }

  cells(node) {
    const found = [[h("a", { href: this.app.link("nodes", [node.name]), tabindex: "-1" }, node.name), badges(node)], this.measured(node, 0), this.measured(node, 1)];
    if (this.hasDevices) found.push(this.deviceCell(node));
    for (const [, index] of this.others) found.push(node.allocatable[index] ? this.measured(node, index) : "");
    found.push([`${node.requested[2]}`, h("span", { class: "dim" }, `/${node.allocatable[2]}`), h("span", { class: "sr" }, " pods")]);
    return found;
  }

  measured(node, index) {
    const name = this.model.resources[index];
    const free = node.allocatable[index] - claimed(node, index);
    return [
      bar(parts(node, index, name), node.allocatable[index]),
      h("span", { class: "figures" }, h("b", null, percent(claimed(node, index), node.allocatable[index])), ` ${amount(name, Math.max(free, 0))} free`,
        h("span", { class: "sr" }, ` of ${amount(name, node.allocatable[index])} ${short(name)}`, kept(node, index, name).map((text) => `, ${text}`))),
    ];
  }

  deviceCell(node) {
    const resource = this.model.resources[this.device];
    if (!node.gpus.length && !(node.allocatable[this.device] > 0)) return h("span", { class: "dim" }, "–");
    const drawn = deviceCells(node, this.device, resource, CELLS);
    if (!drawn) return this.measured(node, this.device);
    const [free, more] = deviceTexts(devices(node, this.device, resource));
    return [drawn, h("span", { class: "figures" }, free, h("span", { class: "sr" }, ` ${more}`))];
  }

  // The strip: every node a column of pixels, in the order of the list

  drawStrip() {
    const items = this.items || [];
    const canvas = this.strip;
    canvas.hidden = items.length < STRIP_FROM;
    if (canvas.hidden || !this.element.isConnected) return;
    const width = this.element.clientWidth - 24;
    if (width < 100) return;
    const { rows, perRow, step, height } = stripLayout(items.length, width);
    Object.assign(this, { stripStep: step, stripPerRow: perRow, stripHeight: height + 2 });
    const scale = devicePixelRatio || 1;
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(rows * (height + 2) * scale);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${rows * (height + 2)}px`;
    const context = canvas.getContext("2d");
    context.scale(scale, scale);
    const style = getComputedStyle(document.documentElement);
    const color = (name) => style.getPropertyValue(`--${name}`).trim();
    const [track, pods, used, reserved, held, bad] = ["track", "pods", "used", "reserved", "held", "bad"].map(color);
    const filled = step >= 4 ? step - 1 : step;
    items.forEach((node, index) => {
      const x = (index % perRow) * step;
      const top = Math.floor(index / perRow) * (height + 2);
      const total = Math.max(node.allocatable[0], claimed(node, 0), 1);
      context.fillStyle = node.flags & (NOT_READY | NO_OBJECT) ? bad : track;
      context.fillRect(x, top, filled, height);
      let at = top + height;
      for (const [value, fillStyle] of [[node.requested[0] - node.used[0], pods], [node.used[0], used], [node.reserved[0], reserved], [node.held[0], held]]) {
        const size = Math.round((height * value) / total);
        context.fillStyle = fillStyle;
        context.fillRect(x, at - size, filled, size);
        at -= size;
      }
    });
    canvas.setAttribute("aria-label", `CPU of ${items.length} nodes in the order of the list below, which has the figures`);
  }

  stripNode(event) {
    const box = this.strip.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left) / this.stripStep);
    const row = Math.floor((event.clientY - box.top) / this.stripHeight);
    return column < this.stripPerRow ? this.items[row * this.stripPerRow + column] : null;
  }

  stripClicked(event) {
    const node = this.stripNode(event);
    if (node) {
      this.list.scrollTo(String(node.id));
      this.app.go("nodes", [node.name]);
    }
  }
}

/** Whole pixels per node, in as few rows as that takes. */
function stripLayout(nodes, width) {
  const step = nodes <= width / 4 ? Math.min(Math.floor(width / nodes), 28) : nodes > 4 * width ? 1 : 2;
  const perRow = Math.floor(width / step);
  const rows = Math.ceil(nodes / perRow);
  return { step, perRow, rows, height: rows === 1 ? 34 : rows <= 4 ? 20 : rows <= 10 ? 11 : 6 };
}

const wordsOf = (text) => text.toLowerCase().split(/\s+/).filter(Boolean);
const COMPARISON = /^([\w./-]+)(>=|<=|>|<)(\d+)%?$/;
const COMPARED = { ">": (a, b) => a > b, "<": (a, b) => a < b, ">=": (a, b) => a >= b, "<=": (a, b) => a <= b };
const FLAGS = {
  "is:cordoned": (node) => node.flags & CORDONED,
  "is:tainted": (node) => node.flags & TAINTED,
  "is:notready": (node) => node.flags & (NOT_READY | NO_OBJECT),
  "has:reservation": (node) => node.reserved.some(Boolean) || node.used.some(Boolean),
  "has:hold": (node) => node.held.some(Boolean),
  "has:gpu": (node, model) => node.gpus.length || model.resources.some((name, index) => isDevice(name) && node.allocatable[index]),
};
const NEGATION = /^[-!](is:|has:|.*[<>=])|!=/;
const EQUATION = /^([\w./-]+)==?(\d+)%?$/;
const resourceIndex = (model, text) => model.resources.findIndex((name) => name === text || short(name) === text);

/** What is wrong with words of a filter that look like a test, a sentence each. */
export function filterProblems(text, model) {
  return wordsOf(text).map((word) => {
    if (NEGATION.test(word)) return `${word} is not a filter: words cannot be negated.`;
    if (/^(is|has):/.test(word) && !FLAGS[word]) return `${word} is unknown; known are ${Object.keys(FLAGS).join(", ")}.`;
    const equated = word.match(EQUATION);
    if (equated && resourceIndex(model, equated[1]) >= 0) return `${word} looks for a label or taint; a share in percent is compared as in ${equated[1]}>=${equated[2]}.`;
    if (!/[<>]/.test(word)) return "";
    const compared = word.match(COMPARISON);
    if (!compared) return `${word} is not a comparison with a percentage, such as cpu>80.`;
    const index = resourceIndex(model, compared[1]);
    if (index < 0) return `${compared[1]} is not a resource; known are ${model.resources.map(short).join(", ")}.`;
    return isDevice(model.resources[index]) ? `${word} compares the share that is requested, reserved or held, in percent; has:gpu finds nodes with devices.` : "";
  }).filter(Boolean);
}

/** Whether the word is a label or taint, with or without the prefix of its key. */
const isNamed = (text, word) => text === word || text.slice(text.lastIndexOf("/") + 1) === word;
const taintsOf = (node) => (node.taints ? node.taints.toLowerCase().split(", ") : []);

/** `web-1 zone=a is:cordoned has:gpu cpu>80`: all words must match. */
export function compileFilter(text, model) {
  const tests = wordsOf(text).map((word) => {
    const compared = word.match(COMPARISON);
    if (compared) {
      const [index, bound, holds] = [resourceIndex(model, compared[1]), Number(compared[3]) / 100, COMPARED[compared[2]]];
      if (index >= 0) return (node) => holds(share(node, index), bound);
    }
    if (FLAGS[word]) return (node) => FLAGS[word](node, model);
    if (word.includes("=")) {
      const codes = new Set();
      model.labels.forEach((label, code) => {
        if (isNamed(label.toLowerCase(), word)) codes.add(code);
      });
      return (node) => node.labels.some((code) => codes.has(code)) || taintsOf(node).some((taint) => isNamed(taint, word) || isNamed(taint.slice(0, taint.lastIndexOf(":")), word));
    }
    return (node) => node.name.toLowerCase().includes(word) || node.taints.toLowerCase().includes(word);
  });
  return (node) => tests.every((test) => test(node));
}

