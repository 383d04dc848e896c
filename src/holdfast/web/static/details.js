// The panel with one object: a node, a pod, a reservation or a pod group; and its explanation.

import { axis, bar, lane, life } from "./charts.js";
import { fill, h } from "./dom.js";
import { amount, amounts, clock, duration, percent, short, title } from "./format.js";
import { KINDS, targetOf } from "./kinds.js";
import { LARGE_CELLS, badges, claimed, deviceCells, devices, deviceTexts, isDevice, kept, parts } from "./nodes.js";
import { placeBadge } from "./pending.js";
import { allocatedShare, expiry, lasting, fitRange, isHold, isPlanned, keeps, marksOf, phaseBadge, phaseOf, remaining } from "./reservations.js";

const READ = ["nodes", "pods", "reservations"];
/** Of a node, the panel shows these from the scheduler's state. */
const SHOWN_OF_NODES = ["nodeCapacity", "placed", "held"];
const KNOWN = ["pods", "queueCapacity", "object", "phase", "summary", "node", "reservation", "told", "wouldSay", "nodes", "ranked", "reservations", "owners", "members", "help", "events", "advice", "details", "holders"];

export class Details {
  constructor(model, app, element) {
    Object.assign(this, { model, app, element });
    this.shown = null;
    this.heading = h("h2", { tabindex: "-1" });
    this.close = h("button", { type: "button", class: "quiet", "aria-label": "Close details", onclick: () => app.closeDetails() }, "Close");
    this.content = h("div", { class: "details-content" });
    element.append(h("div", { class: "details-head" }, this.heading, this.close), this.content);
  }

  /** Shows an object, or nothing. */
  show(view, path, focus) {
    const wanted = path && path.length ? `${view}/${path.join("/")}` : null;
    if (wanted === this.shown) return;
    this.shown = wanted;
    this.view = view;
    this.path = path;
    this.found = null;
    this.loaded = false;
    this.explanation = null;
    this.element.hidden = !wanted;
    document.body.classList.toggle("with-details", Boolean(wanted));
    if (!wanted) return;
    fill(this.heading, h("span", { class: "kind" }, KINDS[view].kind), ` ${path[path.length - 1]}`);
    fill(this.content, h("p", { class: "dim" }, "Loading…"));
    this.load();
    if (focus) this.heading.focus();
  }

  changed(changes) {
    if (!this.shown) return;
    const concerns = { nodes: changes.nodes, reservations: changes.reservations, pods: changes.pending || changes.nodes }[this.view];
    if (concerns && !this.waiting) {
      this.waiting = true;
      setTimeout(() => {
        this.waiting = false;
        this.load();
      }, 1000);
    }
  }

  /** Whether nobody looks at the page; the panel is loaded again when somebody does. */
  isUnseen() {
    if (document.hidden && this.loaded) this.app.missed = true;
    return document.hidden && this.loaded;
  }

  async load() {
    const { shown, view, path } = this;
    if (!shown || this.isUnseen()) return;
    if (!READ.includes(view)) {
      if (!this.explanation) this.explain();
      return;
    }
    const namespaced = view === "pods";
    const query = new URLSearchParams(namespaced ? { namespace: path[0], name: path[1] } : { name: path[0] });
    let found;
    try {
      const response = await fetch(`api/${KINDS[view].kind}?${query}`);
      // Other errors than 404 do not say that it does not exist: a restart, or another token.
      if (!response.ok && response.status !== 404) throw new Error(`${response.status}`);
      found = response.ok ? await response.json() : null;
    } catch {
      if (shown === this.shown && !this.loaded) fill(this.content, gone("The server cannot be reached. The page tries again."));
      return;
    }
    if (shown !== this.shown || this.isUnseen()) return;
    const first = !this.loaded;
    this.loaded = true;
    if (view === "pods" && found?.node && !this.found?.node) this.explanation = null; // it was pending
    this.found = found;
    this.render(found);
    if (first && found && ((view === "pods" && !found.node) || (view === "reservations" && found.phase === "Pending"))) this.explain();
  }

  render(found) {
    const text = JSON.stringify([found, this.explanation, this.shown]);
    if (text === this.text) return;
    this.text = text;
    const focusedKey = document.activeElement && this.content.contains(document.activeElement) ? document.activeElement.getAttribute("href") || document.activeElement.id : null;
    const draw = { nodes: () => this.node(found), pods: () => this.pod(found), reservations: () => this.reservation(found) }[this.view] || (() => this.explained());
    fill(this.content, draw());
    if (focusedKey) [...this.content.querySelectorAll("a, button")].find((each) => (each.getAttribute("href") || each.id) === focusedKey)?.focus();
  }

  // Node

  node(found) {
    const node = this.model.nodeNamed(this.path[0]);
    if (!found || !node) return gone("This node does not exist, or no longer.");
    const { resources } = this.model;
    const rows = resources.map((name, index) => {
      if (!node.allocatable[index] && !claimed(node, index)) return null;
      const free = Math.max(0, node.allocatable[index] - claimed(node, index));
      return h("div", { class: "meter" },
        h("span", { class: "what" }, title(name)),
        (isDevice(name) && deviceCells(node, index, name, LARGE_CELLS)) || bar(parts(node, index, name), node.allocatable[index]),
        h("span", { class: "figures" }, `${amount(name, node.requested[index])} requested, ${kept(node, index, name).map((text) => `${text}, `).join("")}${amount(name, free)} free of ${amount(name, node.allocatable[index])}`));
    });
    const taken = new Map([...this.model.reservations.values()].filter((r) => !r.deleted && r.phase !== "Failed").map((r) => [r.uid, r.name]));
    return [
      h("p", { class: "badges" }, badges(node)),
      rows,
      node.gpus.length > 0 && resources.every((name) => !isDevice(name)) && h("div", { class: "meter" }, h("span", { class: "what" }, "GPUs"), deviceCells(node, -1, "", LARGE_CELLS), h("span", { class: "figures" }, deviceTexts(devices(node, -1)).join(" "))),
      section(`Pods (${found.pods.length})`, found.pods.length ? table(["Pod", "Requests", "From"], found.pods.map((pod) => [
        h("a", { href: this.app.link("pods", [pod.namespace, pod.name]) }, `${pod.namespace}/${pod.name}`),
        amounts(pod.requests),
        pod.preempted ? "being preempted" : pod.reservationUid && taken.has(pod.reservationUid) ? h("a", { href: this.app.link("reservations", [taken.get(pod.reservationUid)]) }, taken.get(pod.reservationUid)) : "",
      ])) : "None."),
      found.planned.length > 0 && section("Planned reservations", listed(found.planned.map((name) => h("a", { href: this.app.link("reservations", [name]) }, name)))),
      found.reservations.length > 0 && section("Reservations", listed(found.reservations.map((name) => h("a", { href: this.app.link("reservations", [name]) }, name)))),
      found.nominated.length > 0 && section("Nominated pods", listed(found.nominated)),
      found.taints.length > 0 && section("Taints", listed(found.taints)),
      this.explanation ? this.explained() : this.explainButton(),
      section("Labels", listed(Object.entries(found.labels).map(([key, value]) => `${key}=${value}`))),
      this.story(found),
    ];
  }

  // Pod

  pod(found) {
    if (!found) return [gone("This pod does not exist, has ended, or is not known to the scheduler."), this.explanation ? this.explained() : this.explainButton()];
    const pending = !found.node;
    return [
      h("p", { class: "badges" }, pending ? placeBadge(found.place) : h("span", { class: "badge good" }, found.phase === "assumed" ? "being bound" : "bound"), found.preempted && h("span", { class: "badge warn" }, "being preempted")),
      this.explained(),
      pending && found.message && section("Condition", h("p", { class: "condition" }, found.message)),
      pending && !found.message && found.gated && section("Why it is gated", h("p", { class: "condition" }, found.gated)),
      facts([
        ["Namespace", found.namespace],
        ["Node", found.node && h("a", { href: this.app.link("nodes", [found.node]) }, found.node)],
        ["Reservation", found.reservation && h("a", { href: this.app.link("reservations", [found.reservation]) }, found.reservation)],
        ["Requests", amounts(found.requests)],
        ["Priority", String(found.priority)],
        [pending ? "Waiting for" : "Age", duration(this.model.now() - found.since)],
        ["Attempts", pending && found.attempts ? String(found.attempts) : ""],
        ["Nominated to", found.nominated],
        ["Controller", this.controller(found)],
        ["Job", found.job && h("a", { href: this.app.link("podgroups", [found.namespace, found.job]) }, found.job)],
        ["Queue", found.queue && h("a", { href: this.app.link("queues", [found.queue]) }, found.queue)],
        ["Gates", found.gates.join(", ")],
        ["Scheduler", found.scheduler],
        ["Rejected by", pending ? found.rejectedBy.join(", ") : ""],
      ]),
      !this.explanation && this.explainButton(),
      this.story(found),
    ];
  }

  controller({ controller, namespace }) {
    if (!controller) return null;
    const [kind, name] = controller.split("/");
    const target = targetOf(kind, namespace, name);
    return target ? h("a", { href: this.app.link(...target) }, controller) : controller;
  }

  // Reservation

  reservation(found) {
    const r = this.model.reservationNamed(this.path[0]);
    if (!r) return gone("This reservation does not exist, or no longer.");
    const now = this.model.now();
    const range = fitRange([r], now);
    const live = found && r.phase !== "Succeeded" && r.phase !== "Failed";
    return [
      h("p", { class: "badges" }, phaseBadge(phaseOf(r)), r.kind !== "reservation" && h("span", { class: "badge calm" }, r.kind), r.once && h("span", { class: "badge calm" }, "allocate once")),
      Object.entries(r.amounts).map(([name, [reserved, taken]]) => h("div", { class: "meter" },
        h("span", { class: "what" }, title(name)),
        bar([{ value: Math.min(taken, reserved), kind: "used" }, { value: found && keeps(r) ? Math.max(0, reserved - taken) : 0, kind: isHold(r) ? "held" : "reserved" }], reserved),
        h("span", { class: "figures" }, `${amount(name, Math.min(taken, reserved))} of ${amount(name, reserved)} ${short(name)} allocated (${percent(taken, reserved)})`))),
      h("div", { class: "gantt" }, axis(range, now, 4), lane(life(r, now), range, now, { share: allocatedShare(r), marks: marksOf(r), height: 26, hold: isHold(r) })),
      facts([
        [isPlanned(r) ? "Planned node" : "Node", r.node && h("a", { href: this.app.link("nodes", [r.node]) }, r.node)],
        ["Start", r.starts ? clock(r.starts, true) : ""],
        [isHold(r) ? "Held for" : "Owners", r.heldFor || r.owners.join(" | ")],
        ["Remaining", live && r.phase !== "Pending" ? remaining(r) : ""],
        ["Devices", found ? found.devices.join(", ") : ""],
        ["Expiry", `${expiry(r, now)} ${lasting(r)}`.trim()],
        ["Expected start", r.expected ? `in ${duration(r.expected - now)} (${clock(r.expected, true)})` : ""],
        ["Policy", r.policy || "Default"],
        ["Created", `${duration(now - r.created)} ago (${clock(r.created, true)})`],
        ["Message", r.message],
      ]),
      section(`Pods allocated from it (${r.podCount})`, r.pods.length ? listed(r.pods.map((name) => h("a", { href: this.app.link("pods", name.split("/")) }, name))) : "None."),
      found && found.conditions.length > 0 && section("Conditions", table(["Type", "Status", "Reason", "Message"], found.conditions.map((each) => [each.type, each.status, each.reason, each.message]))),
      live && (this.explanation ? this.explained() : this.explainButton()),
      found && this.story(found),
    ];
  }

  story(found) {
    if (!found.story || !found.story.length) return null;
    return section("What the scheduler did", table(["Time", "What", ""], found.story.slice().reverse().map((line) => [h("span", { class: "nowrap" }, clock(line.time)), h("span", { class: "nowrap" }, line.what), line.detail])));
  }

  // Explanation

  explainButton() {
    return h("p", null, h("button", { type: "button", id: "explain", onclick: () => this.explain() }, "Explain"));
  }

  async explain() {
    const { shown, view, path } = this;
    this.explanation = { loading: true };
    this.render(this.found);
    const query = new URLSearchParams({ kind: KINDS[view].kind, name: path[path.length - 1] });
    if (KINDS[view].namespaced) query.set("namespace", path[0]);
    let answer;
    try {
      const response = await fetch(`api/explain?${query}`);
      const isJson = (response.headers.get("Content-Type") || "").startsWith("application/json");
      answer = isJson ? await response.json() : { error: await response.text() };
    } catch {
      answer = { error: "The server cannot be reached." };
    }
    if (shown !== this.shown) return;
    this.explanation = { ...answer, at: this.model.now() };
    this.render(this.found);
  }

  explained() {
    const answer = this.explanation;
    if (!answer) return null;
    if (answer.loading) return h("section", { class: "explanation", "aria-live": "polite", "aria-busy": "true" }, h("h3", null, "Explanation"), h("p", { class: "dim" }, "Evaluating the plugins…"));
    if (answer.error) return h("section", { class: "explanation", "aria-live": "polite" }, this.explanationHead(), h("p", { class: "bad-text" }, answer.error));
    const e = answer.explanation;
    const other = Object.entries(e).filter(([key, value]) => !KNOWN.includes(key) && !(this.view === "nodes" && SHOWN_OF_NODES.includes(key)) && value && (!Array.isArray(value) || value.length));
    return h("section", { class: "explanation", "aria-live": "polite", id: "explanation" },
      this.explanationHead(),
      h("p", { class: "verdict" }, e.summary),
      e.advice && e.advice.length > 0 && [h("h4", null, "What would help"), h("ul", null, e.advice.map((each) => h("li", null, typeof each === "string" ? each : each.text || plain(each))))],
      bullets(e).length > 0 && [h("h4", null, "Details"), h("ul", null, bullets(e).map((each) => h("li", null, each)))],
      e.pods && e.pods.length > 0 && [h("h4", null, this.view === "nodes" ? "Pending pods" : "Pods"), table(["State", "Pods", "Reason"], e.pods.map((each) => [h("span", { class: "nowrap" }, each.state), [h("b", null, String(each.count)), " ", this.fewPods(each.pods)], each.reason]))],
      e.queueCapacity && e.queueCapacity.length > 0 && [h("h4", null, "Shares"), table(["Resource", "Allocated", "Requested", "Deserved", "Guarantee", "Limit"], e.queueCapacity.map((each) => [each.resource, each.allocated, each.requested, each.deserved, each.guarantee, each.capability]))],
      e.wouldSay && e.wouldSay !== e.told && [h("h4", null, "Condition if scheduled now"), h("p", { class: "condition" }, e.wouldSay)],
      e.nodes && e.nodes.length > 0 && [h("h4", null, "Infeasible nodes"), table(["Reason", "Nodes", "Plugin"], e.nodes.map((each) => [each.reason, [h("b", null, String(each.nodes.length)), " ", this.fewNodes(each.nodes)], h("span", { class: "nowrap" }, each.plugin)]))],
      e.ranked && e.ranked.length > 0 && [h("h4", null, "Feasible nodes, best first"), table(["Node", "Node score", "Reservation score", "Reservation"], e.ranked.map((each) => [h("a", { href: this.app.link("nodes", [each.node]) }, each.node), String(each.nodeScore), reservationScore(each), each.reservation || "-"]))],
      e.reservations && e.reservations.length > 0 && [h("h4", null, "Matching reservations"), table(["Name", "Phase", "Node", "Left", ""], e.reservations.map((each) => [h("a", { href: this.app.link("reservations", [each.name]) }, each.name), each.phase, each.node, each.left, each.why]))],
      e.owners && e.owners.length > 0 && [h("h4", null, "Owners"), listed(e.owners)],
      e.members && e.members.length > 0 && [h("h4", null, "Members"), listed(e.members)],
      other.map(([key, value]) => [h("h4", null, heading(key)), generic(value)]),
      e.events && e.events.length > 0 && [h("h4", null, "Events"), table(["Time", "Reason", "Message"], e.events.slice(-10).reverse().map((each) => [h("span", { class: "nowrap" }, timeOf(each.time)), h("span", { class: "nowrap" }, each.reason), each.message]))],
      answer.command && h("p", { class: "dim command" }, "The same in a terminal: ", h("code", null, answer.command)));
  }

  /** An explanation does not follow the cluster, so it says when it was made. */
  explanationHead() {
    const { at } = this.explanation;
    return h("div", { class: "explanation-head" }, h("h3", null, "Explanation"), h("span", { class: "dim" }, `as of ${clock(at)}`),
      h("button", { type: "button", id: "explain", class: "quiet", onclick: () => this.explain() }, "Explain again"));
  }

  fewNodes(names) {
    return few(names, (name) => h("a", { href: this.app.link("nodes", [name]) }, name));
  }

  /** Of a workload, pods are named without its namespace. */
  fewPods(names) {
    const pathOf = (name) => (name.includes("/") ? name.split("/") : [this.path[0], name]);
    return few(names, (name) => h("a", { href: this.app.link("pods", pathOf(name)) }, name));
  }
}

function few(names, shown) {
  return [names.slice(0, 4).map((name, index) => [index ? ", " : "", shown(name)]), names.length > 4 ? ` and ${names.length - 4} more` : ""];
}

const bullets = (e) => e.details || e.help || [];
const timeOf = (text) => (Number.isNaN(Date.parse(text)) ? text : clock(Date.parse(text) / 1000));
const gone = (text) => h("p", { class: "dim" }, text);
const section = (name, ...content) => h("section", null, h("h3", null, name), content);
const listed = (items) => h("ul", { class: "plain" }, items.map((item) => h("li", null, item)));
const heading = (key) => key.replace(/([A-Z])/g, " $1").replace(/^./, (letter) => letter.toUpperCase()).toLowerCase().replace(/^./, (letter) => letter.toUpperCase());

function facts(pairs) {
  return h("dl", { class: "facts" }, pairs.filter(([, value]) => value).map(([name, value]) => [h("dt", null, name), h("dd", null, value)]));
}

function table(heads, rows) {
  return h("div", { class: "table-box", tabindex: "0", role: "region", "aria-label": heads.filter(Boolean).join(", ") },
    h("table", null, h("thead", null, h("tr", null, heads.map((text) => (text ? h("th", { scope: "col" }, text) : h("td"))))), h("tbody", null, rows.map((cellsOfRow) => h("tr", null, cellsOfRow.map((cell) => h("td", null, cell)))))));
}

/** Whatever a newer version of the command adds. */
function generic(value) {
  if (Array.isArray(value)) {
    if (value.every((each) => typeof each !== "object")) return listed(value.map(String));
    const keys = [...new Set(value.flatMap((each) => Object.keys(each)))];
    return table(keys.map(heading), value.map((each) => keys.map((key) => plain(each[key]))));
  }
  return typeof value === "object" ? facts(Object.entries(value).map(([key, each]) => [heading(key), plain(each)])) : h("p", null, String(value));
}

function plain(value) {
  if (value === null || value === undefined) return "";
  if (Array.isArray(value)) return value.map(plain).join(", ");
  return typeof value === "object" ? Object.entries(value).map(([key, each]) => `${key} ${plain(each)}`).join(", ") : String(value);
}

/** What the reservation adds to the score of a node; a last resort takes away more than can be shown. */
function reservationScore(ranked) {
  if (ranked.reservationScore < 0) return "last resort";
  return ranked.reservationScore ? String(ranked.reservationScore) : "-";
}
