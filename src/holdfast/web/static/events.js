// The latest events, newest first, as they come.

import { h, setText } from "./dom.js";
import { clock, count, duration } from "./format.js";
import { targetOf } from "./kinds.js";
import { List } from "./list.js";

export class EventsView {
  constructor(model, app) {
    Object.assign(this, { model, app });
    this.filter = "";
    this.paused = false;
    this.list = new List({
      label: "Events",
      name: "events",
      columns: [
        { key: "time", title: "Time", class: "when" },
        { key: "reason", title: "Reason", class: "phase" },
        { key: "object", title: "Object", class: "name" },
        { key: "message", title: "Message", class: "why" },
      ],
      rowHeight: 40,
      narrowHeight: 94,
      key: (event) => event.id,
      render: (event) => this.cells(event),
      open: (event) => target(event) && app.go(...target(event)),
      sorted: () => {},
      empty: () => (this.filter ? "No event matches the filter." : "No events yet."),
      rowClass: (event) => (event.type === "Warning" ? "warning-row" : ""),
    });
    this.pause = h("button", { type: "button", class: "quiet", "aria-pressed": "false", onclick: () => this.setPaused(!this.paused) }, "Pause");
    this.note = h("p", { class: "note", role: "status" });
    this.element = h("section", { class: "view", "aria-label": "Events" }, h("div", { class: "tools" }, this.note, this.pause), this.list.box);
    this.filterHelp = "reason, object, message, or warning";
  }

  setOptions(options) {
    this.filter = options.get("filter") || "";
    this.refresh();
  }

  shown() {
    this.refresh();
  }

  changed(changes) {
    if (changes.events && !this.paused) this.refresh();
  }

  setPaused(paused) {
    this.paused = paused;
    this.pause.setAttribute("aria-pressed", String(paused));
    setText(this.pause, paused ? "Resume" : "Pause");
    this.refresh();
  }

  refresh() {
    const words = this.filter.toLowerCase().split(/\s+/).filter(Boolean);
    const text = (event) => `${event.type} ${event.reason} ${event.kind}/${event.namespace}/${event.name} ${event.message}`.toLowerCase();
    const found = [...this.model.events.values()].reverse().filter((event) => words.every((word) => text(event).includes(word)));
    this.list.show(found, new Set());
    setText(this.note, this.paused ? "Paused" : `${count(found.length, "event")}${this.filter ? " match" : ", newest first"}`);
  }

  cells(event) {
    const name = `${event.kind}/${event.namespace && event.kind !== "Node" ? `${event.namespace}/` : ""}${event.name}`;
    return [
      h("time", { datetime: new Date(event.time * 1000).toISOString(), title: `${clock(event.time, true)} (${duration(this.model.now() - event.time)} ago)` }, clock(event.time)),
      [h("span", { class: `badge ${event.type === "Warning" ? "warn" : "calm"}` }, event.reason), event.count > 1 && h("span", { class: "dim" }, ` ×${event.count}`)],
      target(event) ? h("a", { href: this.app.link(...target(event)), tabindex: "-1" }, name) : name,
      h("span", { class: "message", title: event.message }, event.message),
    ];
  }
}

const target = (event) => targetOf(event.kind, event.namespace, event.name);
