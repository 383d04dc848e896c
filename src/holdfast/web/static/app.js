// The page: views, addresses, keyboard, theme.

import { bar, hatchings } from "./charts.js";
import { Details } from "./details.js";
import { fill, h, setText } from "./dom.js";
import { EventsView } from "./events.js";
import { amount, count, percent, title } from "./format.js";
import { KINDS } from "./kinds.js";
import { Connection, Model } from "./model.js";
import { NodesView } from "./nodes.js";
import { PendingView } from "./pending.js";
import { QueuesView } from "./queues.js";
import { ReservationsView } from "./reservations.js";

const VIEWS = [
  ["nodes", "Nodes", NodesView],
  ["reservations", "Reservations", ReservationsView],
  ["pending", "Pending", PendingView],
  ["queues", "Queues", QueuesView],
  ["events", "Events", EventsView],
];
const STATES = { connecting: "connecting", live: "live", lost: "reconnecting", refused: "signed out: open the printed address again" };

class App {
  constructor() {
    this.model = new Model();
    this.main = document.getElementById("main");
    this.live = document.getElementById("live");
    this.summary = document.getElementById("summary");
    this.views = new Map();
    this.current = null;
    this.options = new URLSearchParams();
    this.lastOptions = new Map();
    document.body.append(hatchings());
    this.details = new Details(this.model, this, document.getElementById("details"));
    this.tabs = new Map(VIEWS.map(([name, text]) => [name, h("a", { href: `#/${name}` }, text, h("span", { class: "count" }))]));
    this.filter = h("input", { type: "search", id: "filter", "aria-label": "Filter", autocomplete: "off", spellcheck: "false", oninput: () => this.filterTyped() });
    document.getElementById("views").append(...this.tabs.values(), h("span", { class: "grow" }), this.filter);
    this.prepareTheme();
    this.prepareKeyboard();
    addEventListener("hashchange", () => this.route());
    addEventListener("click", (event) => this.follow(event));
    document.querySelector(".skip").addEventListener("click", (event) => {
      event.preventDefault();
      this.focusView();
    });
    this.model.onChange((changes) => this.changed(changes));
    this.setState("connecting");
    new Connection(this.model, (state) => this.setState(state)).start();
    setInterval(() => this.showState(), 5000);
  }

  // Addresses: #/view/path?option=value

  /** The list behind the panel of an object: that of its kind, or the one it was opened from. */
  homeOf(view) {
    return VIEWS.some(([name]) => name === view) ? view : this.current || "pending";
  }

  link(view, path = [], options = null) {
    const query = options || this.lastOptions.get(this.homeOf(view)) || new URLSearchParams();
    const text = query.toString();
    return `#/${[view, ...path.map(encodeURIComponent)].join("/")}${text ? `?${text}` : ""}`;
  }

  go(view, path = []) {
    location.hash = this.link(view, path);
  }

  /** Follows a link with the options of now: rows are drawn once, and may be older than the filter. */
  follow(event) {
    const link = event.target.closest('a[href^="#/"]');
    if (!link || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    const { view, path } = this.read(link.hash);
    this.go(view, path);
  }

  setOption(name, value) {
    const options = new URLSearchParams(this.options);
    if (value) options.set(name, value);
    else options.delete(name);
    const { view, path } = this.read();
    history.replaceState(null, "", this.link(view, path, options));
    this.route();
  }

  closeDetails() {
    location.hash = `#/${this.current}${this.options.toString() ? `?${this.options}` : ""}`;
    this.focusView();
  }

  read(hash = location.hash) {
    const [path, query] = hash.replace(/^#\/?/, "").split("?");
    const parts = path.split("/").filter(Boolean).map((part) => {
      try {
        return decodeURIComponent(part);
      } catch {
        return part;
      }
    });
    if (KINDS[parts[0]]?.namespaced && parts.length === 2) parts.splice(1, 0, "default");
    const known = VIEWS.some(([name]) => name === parts[0]) || KINDS[parts[0]];
    return { view: known ? parts[0] : "nodes", path: known ? parts.slice(1) : [], options: new URLSearchParams(query || "") };
  }

  route() {
    if (!this.model.loaded) return;
    const { view, path, options } = this.read();
    const home = this.homeOf(view);
    this.options = options;
    this.lastOptions.set(home, options);
    for (const [name, tab] of this.tabs) {
      if (name === home) tab.setAttribute("aria-current", "page");
      else tab.removeAttribute("aria-current");
      tab.href = this.link(name, [], this.lastOptions.get(name) || new URLSearchParams());
    }
    const shownBefore = this.current;
    const instance = this.viewOf(home);
    const moved = this.current !== home;
    this.current = home;
    if (moved) fill(this.main, instance.element);
    const wanted = KINDS[view] && path.length ? path : null;
    instance.setOptions(options, home === view ? wanted?.[0] : home === "pending" && view === "pods" ? wanted : null);
    if (moved) {
      instance.shown();
      this.filter.placeholder = "Filter";
      this.filter.title = `Filter by ${instance.filterHelp}`;
    }
    if (document.activeElement !== this.filter) this.filter.value = options.get("filter") || "";
    const name = VIEWS.find(([each]) => each === home)[1];
    document.title = `${wanted ? `${wanted.join("/")} · ` : ""}${name} · Holdfast`;
    this.details.show(view, wanted, shownBefore !== null);
    requestAnimationFrame(() => instance.list?.paint());
  }

  viewOf(name) {
    if (!this.views.has(name)) {
      const [, , View] = VIEWS.find(([each]) => each === name);
      this.views.set(name, new View(this.model, this));
    }
    return this.views.get(name);
  }

  filterTyped() {
    clearTimeout(this.typing);
    this.typing = setTimeout(() => this.setOption("filter", this.filter.value.trim()), 120);
  }

  focusView() {
    const view = this.views.get(this.current);
    if (view?.list && view.list.items.length) view.list.focus();
    else this.main.focus();
  }

  // Changes

  changed(changes) {
    if (!this.started) {
      this.started = true;
      this.route();
      requestAnimationFrame(() => requestAnimationFrame(() => {
        performance.mark("holdfast-painted");
        document.documentElement.dataset.ready = "true";
      }));
    } else if (!document.hidden) {
      this.views.get(this.current)?.changed(changes);
      this.details.changed(changes);
    } else {
      this.missed = true;
    }
    if (changes.nodes || !this.summary.hasChildNodes()) this.showSummary();
    this.showCounts();
    this.showState();
  }

  showCounts() {
    const { model } = this;
    let live = 0;
    for (const r of model.reservations.values()) if (!r.deleted && r.phase !== "Succeeded" && r.phase !== "Failed") live += 1;
    const numbers = { nodes: model.nodes.size, reservations: live, pending: model.pendingTotal, queues: model.queues.size };
    for (const [name, number] of Object.entries(numbers)) setText(this.tabs.get(name).querySelector(".count"), number ? number.toLocaleString("en") : "");
    this.tabs.get("pending").classList.toggle("attention", model.pendingTotal > 0);
    setText(document.getElementById("cluster"), [model.cluster, model.role].filter(Boolean).join(" · "));
  }

  showSummary() {
    const totals = this.model.totals();
    const titles = this.model.resources.map(title);
    const meters = this.model.resources.map((name, index) => {
      const [allocatable, requested, used, reserved, held, free] = totals[index];
      if (!allocatable || (index > 2 && !requested && !reserved && !held && !/gpu/i.test(name))) return null;
      const kinds = [["pods", requested - used], ["used", used], ["reserved", reserved], ["held", held]];
      return h("div", { class: "meter" },
        h("span", { class: "what", title: name }, titles.filter((each) => each === titles[index]).length > 1 ? name : titles[index]),
        h("span", { class: "figures" }, h("b", null, percent(allocatable - free, allocatable)), ` · ${amount(name, free)} free`, h("span", { class: "whole" }, ` of ${amount(name, allocatable)}`), h("span", { class: "sr" }, `; ${amount(name, requested)} requested by pods, ${amount(name, reserved)} reserved, ${amount(name, held)} held`)),
        bar(kinds.map(([kind, value]) => ({ kind, value })), allocatable));
    }).filter(Boolean).slice(0, 5);
    const key = h("ul", { class: "key", "aria-label": "Key" }, [["pods", "pods"], ["used", "pods on reservations"], ["reserved", "reserved"], ["held", "held for a preemptor or a starving job"]].map(([kind, text]) => h("li", null, bar([{ kind, value: 1 }], 1), text)));
    fill(this.summary, meters, key);
  }

  setState(state) {
    this.state = state;
    this.showState();
  }

  showState() {
    this.live.className = `live ${this.state}`;
    setText(this.live, STATES[this.state]);
    this.live.title = this.model.loaded ? `Holdfast ${this.model.version}; ${count(this.model.sequence, "change")} in this stream` : "";
  }

  // Theme

  prepareTheme() {
    const button = document.getElementById("theme");
    const show = () => setText(button, `Theme: ${document.documentElement.dataset.theme || "system"}`);
    this.nextTheme = () => {
      const next = { undefined: "dark", dark: "light", light: undefined }[document.documentElement.dataset.theme];
      if (next) document.documentElement.dataset.theme = next;
      else delete document.documentElement.dataset.theme;
      try {
        if (next) localStorage.setItem("holdfast-theme", next);
        else localStorage.removeItem("holdfast-theme");
      } catch {
        // Storage can be forbidden; the choice then lasts as long as the page.
      }
      show();
      this.views.get("nodes")?.drawStrip();
    };
    button.addEventListener("click", this.nextTheme);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.views.get("nodes")?.drawStrip());
    show();
  }

  // Keyboard

  prepareKeyboard() {
    let letters = true;
    try {
      letters = localStorage.getItem("holdfast-letters") !== "off";
    } catch {
      // As above.
    }
    const box = h("input", { type: "checkbox", id: "letters" });
    box.checked = letters;
    box.addEventListener("change", () => {
      letters = box.checked;
      try {
        localStorage.setItem("holdfast-letters", letters ? "on" : "off");
      } catch {
        // As above.
      }
    });
    const keys = [
      ["1 … 5", "show a view"],
      ["/", "filter"],
      ["↓ ↑ or j k", "next and previous row; Page Down, Home, End work too"],
      ["Enter", "open the row"],
      ["Esc", "close the panel, or clear the filter"],
      ["t", "change the theme"],
      ["?", "this list"],
    ];
    const dialog = h("dialog", { "aria-labelledby": "keys-title" },
      h("h2", { id: "keys-title" }, "Keyboard"),
      h("dl", { class: "facts" }, keys.map(([key, text]) => [h("dt", null, h("kbd", null, key)), h("dd", null, text)])),
      h("p", null, h("label", null, box, " Letters and digits are shortcuts")),
      h("form", { method: "dialog" }, h("button", null, "Close")));
    document.body.append(dialog);
    document.getElementById("help").addEventListener("click", () => dialog.showModal());
    addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || dialog.open) return;
      const typing = event.target.closest?.("input, textarea, select");
      if (event.key === "Escape") {
        if (typing) {
          if (this.filter.value) {
            this.filter.value = "";
            this.setOption("filter", "");
          }
          this.focusView(); // so that the next key is a shortcut again
        } else if (this.details.shown) this.closeDetails();
        else if (this.options.get("filter")) this.setOption("filter", "");
        return;
      }
      if (typing) {
        if (event.key === "ArrowDown" || event.key === "Enter") {
          event.preventDefault();
          this.focusView();
        }
        return;
      }
      if (!letters) return;
      const view = VIEWS[Number(event.key) - 1];
      if (view) this.go(view[0]);
      else if (event.key === "/") this.filter.focus();
      else if (event.key === "t") this.nextTheme();
      else if (event.key === "?") dialog.showModal();
      else if (event.key === "j" || event.key === "k") this.focusView();
      else return;
      event.preventDefault();
    });
    document.addEventListener("visibilitychange", () => {
      if (!document.hidden && this.missed) {
        this.missed = false;
        this.views.get(this.current)?.shown();
        this.details.load();
      }
    });
  }
}

new App();
