// Pods and reservations without a node, with the reasons; the reasons of all of them first.

import { fill, h, setText } from "./dom.js";
import { amounts, byName, count, duration } from "./format.js";
import { List } from "./list.js";

const PLACES = { active: ["in turn", "calm"], backoff: ["backing off", "calm"], unschedulable: ["unschedulable", "warn"], following: ["unschedulable", "warn"], gated: ["gated", "calm"], notServed: ["not served", "warn"] };

export function placeBadge(place) {
  const [text, kind] = PLACES[place] || ["new", "calm"];
  return h("span", { class: `badge ${kind}` }, text);
}

const MAX_REASON = 120;

export class PendingView {
  constructor(model, app) {
    Object.assign(this, { model, app });
    this.sort = "";
    this.filter = "";
    this.list = new List({
      label: "Pending pods and reservations",
      name: "pending",
      columns: [
        { key: "name", title: "Waiting for a node", sorts: true, class: "name" },
        { key: "place", title: "State", sorts: true, class: "phase" },
        { key: "since", title: "For", sorts: true, class: "when" },
        { key: "priority", title: "Priority", sorts: true, class: "number" },
        { key: "requests", title: "Requests", class: "requests" },
        { key: "message", title: "Why", class: "why" },
      ],
      rowHeight: 48,
      narrowHeight: 126,
      key: (row) => row.uid,
      render: (row) => this.cells(row),
      open: (row) => app.go(...target(row)),
      sorted: (key) => app.setOption("sort", this.sort === key ? `-${key}` : this.sort === `-${key}` ? "" : key),
      empty: () => (this.filter ? "Nothing that is pending matches the filter." : "Nothing is pending."),
    });
    this.chips = h("div", { class: "chips", role: "group", "aria-label": "Reasons" });
    this.note = h("p", { class: "note", role: "status" });
    this.element = h("section", { class: "view", "aria-label": "Pending" }, h("div", { class: "tools" }, this.note), this.chips, this.list.box);
    this.filterHelp = "name, namespace, queue, job or reason";
    setInterval(() => this.element.isConnected && !document.hidden && this.refresh(), 10000);
  }

  setOptions(options, chosen) {
    this.sort = options.get("sort") || "";
    this.filter = options.get("filter") || "";
    this.chosen = chosen;
    this.list.setSort(this.sort);
    this.refresh();
  }

  shown() {
    this.refresh();
  }

  changed(changes) {
    if (changes.pending) this.refresh();
  }

  refresh() {
    const rows = [...this.model.pending.values()];
    const words = this.filter.toLowerCase().match(/"[^"]+"|\S+/g) || [];
    const text = (row) => `${row.namespace}/${row.name} ${row.kind} ${row.queue} ${row.job} ${row.place} ${row.message}`.toLowerCase();
    const found = rows.filter((row) => words.every((word) => text(row).includes(word.replace(/"/g, ""))));
    const down = this.sort.startsWith("-");
    const key = down ? this.sort.slice(1) : this.sort;
    found.sort((one, other) => (down ? -1 : 1) * compare(key, one, other) || other.priority - one.priority || one.since - other.since || byName(one.name, other.name));
    this.list.show(found);
    if (this.chosen) {
      const row = found.find((each) => target(each)[1].join("/") === this.chosen.join("/"));
      this.list.choose(row ? row.uid : null);
    } else this.list.choose(null);
    const { pendingTotal } = this.model;
    const listed = pendingTotal > rows.length ? ` (${rows.length.toLocaleString("en")} listed, some of each kind)` : "";
    setText(this.note, this.filter ? `${found.length.toLocaleString("en")} of ${pendingTotal.toLocaleString("en")} match` : `${pendingTotal.toLocaleString("en")} waiting for a node${listed}`);
    this.showReasons(rows);
  }

  showReasons(rows) {
    const counts = new Map();
    for (const row of rows) for (const reason of new Set(row.reasons.map((each) => each.slice(0, MAX_REASON)))) counts.set(reason, (counts.get(reason) || 0) + 1);
    const most = [...counts].sort((one, other) => other[1] - one[1]).slice(0, 6);
    const more = this.model.pendingTotal > rows.length ? "+" : ""; // others are not listed
    const text = JSON.stringify([most, more, this.filter]);
    if (text === this.chipsText) return;
    this.chipsText = text;
    fill(this.chips, most.map(([reason, number]) => {
      const chosen = this.filter === `"${reason}"`;
      return h("button", { type: "button", class: "chip", "aria-pressed": String(chosen), onclick: () => this.app.setOption("filter", chosen ? "" : `"${reason}"`) }, h("b", null, `${number}${more}`), ` ${reason}`);
    }));
  }

  cells(row) {
    const where = row.kind === "Pod" ? row.namespace : "reservation";
    const more = [row.job && `job ${row.job}`, row.queue && `queue ${row.queue}`, row.like > 1 && `${row.like} like this`, row.nominated && `nominated to ${row.nominated}`].filter(Boolean);
    return [
      [h("a", { href: this.app.link(...target(row)), tabindex: "-1" }, row.name), h("span", { class: "under" }, [where, ...more].join(" · "))],
      placeBadge(row.place),
      h("span", { class: "figures" }, duration(this.model.now() - row.since)),
      row.kind === "Pod" ? String(row.priority) : h("span", { class: "dim" }, "–"),
      h("span", { class: "figures" }, amounts(row.requests)),
      h("span", { class: "message", title: row.message }, row.message || "not tried yet"),
    ];
  }
}

const target = (row) => (row.kind === "Pod" ? ["pods", [row.namespace, row.name]] : ["reservations", [row.name]]);

function compare(key, one, other) {
  switch (key) {
    case "name": return byName(one.name, other.name);
    case "place": return byName(one.place, other.place);
    case "since": return other.since - one.since;
    case "priority": return one.priority - other.priority;
    default: return 0;
  }
}
