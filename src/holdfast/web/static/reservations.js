// The reservations: what they hold, for whom, and a Gantt chart of their life.

import { axis, bar, lane, life } from "./charts.js";
import { h, setText } from "./dom.js";
import { amount, amounts, byName, count, duration, short } from "./format.js";
import { List } from "./list.js";

const RANGES = { "1h": 3600, "6h": 21600, "24h": 86400, "7d": 604800 };
const ORDER = ["Available", "Waiting", "Pending", "Succeeded", "Failed"];
const CLASSES = { Available: "good", Waiting: "warn", Pending: "calm", Succeeded: "calm", Failed: "bad", Deleted: "calm", Planned: "calm", Draining: "warn", NotPlanned: "bad" };

export const phaseOf = (reservation) => (reservation.deleted ? "Deleted" : reservation.state || reservation.phase);
export const phaseBadge = (phase) => h("span", { class: `badge ${CLASSES[phase] || "calm"}` }, phase);
/** Whether it starts later: it has a planned node, and holds nothing of it. */
export const isPlanned = (reservation) => !reservation.deleted && reservation.state !== "";
export const isHold = (reservation) => reservation.kind.endsWith("hold");
/** Whether it keeps capacity of a node now. */
export const keeps = (reservation) => isLive(reservation) && reservation.phase !== "Pending" && !isPlanned(reservation);
const isLive = (reservation) => !reservation.deleted && !["Succeeded", "Failed"].includes(reservation.phase);

/** The largest allocated share of its resources. */
export function allocatedShare(reservation) {
  return Math.max(0, ...Object.values(reservation.amounts).map(([reserved, taken]) => (reserved ? taken / reserved : 0)));
}

/** `4 / 8 cpu` of every resource. */
export function usage(reservation) {
  return Object.entries(reservation.amounts).map(([name, [reserved, taken]]) => `${amount(name, Math.min(taken, reserved))} of ${amount(name, reserved)} ${short(name)}`);
}

export function remaining(reservation) {
  const left = Object.fromEntries(Object.entries(reservation.amounts).map(([name, [reserved, taken]]) => [name, Math.max(0, reserved - taken)]));
  return amounts(left);
}

export function expiry(reservation, now) {
  if (reservation.deleted) return `deleted ${duration(now - reservation.deleted)} ago`;
  if (reservation.ended) return `ended ${duration(now - reservation.ended)} ago`;
  if (!isLive(reservation)) return "ended";
  if (isPlanned(reservation)) return reservation.starts > now ? `starts in ${duration(reservation.starts - now)}` : "starting";
  if (!reservation.expires) return "never expires";
  return reservation.expires > now ? `expires in ${duration(reservation.expires - now)}` : "expiring";
}

/** Of a planned reservation how long it lasts, as in "for 4h". */
export function lasting(reservation) {
  return isPlanned(reservation) && reservation.expires ? `for ${duration(reservation.expires - reservation.starts)}` : "";
}

export function marksOf(reservation) {
  const marks = [];
  if (reservation.expected) marks.push({ time: reservation.expected, kind: "expected", title: "expected start" });
  if (reservation.ended) marks.push({ time: reservation.ended, kind: reservation.phase === "Failed" ? "failed" : "done", title: reservation.phase });
  return marks;
}

/** The range that shows all of them, with now inside. */
export function fitRange(reservations, now) {
  let from = now - 300;
  let to = now + 900;
  for (const each of reservations) {
    from = Math.min(from, each.created);
    to = Math.max(to, each.expires && isLive(each) ? each.expires : now, each.expected || now, isPlanned(each) ? each.starts + 900 : now);
  }
  from = Math.max(from, now - RANGES["7d"]);
  to = Math.min(to, now + RANGES["7d"]);
  const margin = (to - from) * 0.02;
  return { from: from - margin, to: to + margin };
}

export class ReservationsView {
  constructor(model, app) {
    Object.assign(this, { model, app });
    this.sort = "";
    this.filter = "";
    this.rangeName = "";
    this.axisBox = h("div", { class: "axis-box" });
    const columns = [
      { key: "name", title: "Reservation", sorts: true, class: "name" },
      { key: "phase", title: "Phase", sorts: true, class: "phase" },
      { key: "node", title: "Node", sorts: true, class: "node" },
      { key: "used", title: "Allocated", sorts: true, class: "bars" },
      { key: "expires", title: "Expires", sorts: true, class: "when" },
      { key: "life", title: "Life, past and planned", class: "life", head: this.axisBox },
    ];
    this.list = new List({
      label: "Reservations",
      name: "reservations",
      columns,
      rowHeight: 48,
      narrowHeight: 138,
      key: (reservation) => reservation.uid,
      render: (reservation) => this.cells(reservation),
      open: (reservation) => app.go("reservations", [reservation.name]),
      sorted: (key) => app.setOption("sort", this.sort === key ? `-${key}` : this.sort === `-${key}` ? "" : key),
      empty: () => (this.filter ? "No reservation matches the filter." : "There are no reservations. Create one with: holdfast reserve --cpu 4 --owner app=web"),
      rowClass: (reservation) => (isLive(reservation) ? "" : "past-row"),
    });
    this.ranges = h("div", { class: "choices", role: "group", "aria-label": "Time range" },
      ["", ...Object.keys(RANGES)].map((name) => h("button", { type: "button", "data-range": name, onclick: () => app.setOption("range", name) }, name || "all")));
    this.note = h("p", { class: "note", role: "status" });
    this.element = h("section", { class: "view", "aria-label": "Reservations" }, h("div", { class: "tools" }, this.note, this.ranges), this.list.box);
    this.filterHelp = "name, owner, node, phase or kind";
    setInterval(() => this.element.isConnected && !document.hidden && this.refresh(null), 5000);
  }

  setOptions(options, chosen) {
    this.sort = options.get("sort") || "";
    this.filter = options.get("filter") || "";
    this.rangeName = options.get("range") || "";
    this.chosenName = chosen || null;
    for (const button of this.ranges.children) button.setAttribute("aria-pressed", String(button.dataset.range === this.rangeName));
    this.list.setSort(this.sort);
    this.refresh(null);
    this.choose();
  }

  choose() {
    const found = this.chosenName ? this.model.reservationNamed(this.chosenName) : null;
    this.list.choose(found ? found.uid : null);
  }

  shown() {
    this.refresh(null);
    this.choose();
    if (this.list.chosen) this.list.scrollTo(this.list.chosen);
  }

  changed(changes) {
    if (changes.reservations) this.refresh(null);
  }

  refresh(keys) {
    const now = this.model.now();
    const words = this.filter.toLowerCase().split(/\s+/).filter(Boolean);
    const text = (r) => [r.name, r.kind, phaseOf(r), r.node, ...r.owners, ...r.pods, r.heldFor].join(" ").toLowerCase();
    const found = [...this.model.reservations.values()].filter((r) => !words.length || words.every((word) => text(r).includes(word)));
    const down = this.sort.startsWith("-");
    const key = down ? this.sort.slice(1) : this.sort;
    found.sort((one, other) => (down ? -1 : 1) * order(key, one, other) || other.created - one.created || byName(one.name, other.name));
    this.range = RANGES[this.rangeName] ? { from: now - RANGES[this.rangeName] * 0.6, to: now + RANGES[this.rangeName] * 0.4 } : fitRange(found, now);
    this.axisBox.replaceChildren(h("span", { class: "sr" }, "Life, past and planned"), axis(this.range, now));
    this.list.show(found, keys);
    const live = found.filter(isLive).length;
    const planned = found.filter(isPlanned).length;
    setText(this.note, `${count(live - planned, "live reservation")}, ${planned ? `${planned.toLocaleString("en")} planned, ` : ""}${(found.length - live).toLocaleString("en")} ended`);
  }

  cells(r) {
    const now = this.model.now();
    const main = Object.entries(r.amounts)[0];
    const owners = isHold(r) ? r.heldFor || r.owners.join(" | ") : r.owners.join(" | ");
    const stretches = life(r, now);
    return [
      [h("a", { href: this.app.link("reservations", [r.name]), tabindex: "-1" }, r.name), h("span", { class: "under", title: owners }, isHold(r) ? `${r.kind} for ${owners}` : `for ${owners || "no owner"}`)],
      phaseBadge(phaseOf(r)),
      r.node ? h("a", { href: this.app.link("nodes", [r.node]), tabindex: "-1" }, r.node) : h("span", { class: "dim" }, "–"),
      main ? [
        bar([{ value: Math.min(main[1][1], main[1][0]), kind: "used" }, { value: keeps(r) ? Math.max(0, main[1][0] - main[1][1]) : 0, kind: isHold(r) ? "held" : "reserved" }], main[1][0]),
        h("span", { class: "figures", title: usage(r).join(", ") }, isLive(r) && r.phase !== "Pending" ? `${remaining(r)} left` : amounts(Object.fromEntries(Object.entries(r.amounts).map(([name, [reserved]]) => [name, reserved])))),
      ] : h("span", { class: "dim" }, "–"),
      h("span", { class: "figures" }, expiry(r, now), h("span", { class: "under" }, r.podCount ? count(r.podCount, "pod") : lasting(r))),
      lane(stretches, this.range, now, { share: allocatedShare(r), marks: marksOf(r), height: 24, hold: isHold(r) }),
    ];
  }
}

function order(key, one, other) {
  switch (key) {
    case "name": return byName(one.name, other.name);
    case "node": return byName(one.node, other.node);
    case "used": return allocatedShare(one) - allocatedShare(other);
    case "expires": return (one.expires || Infinity) === (other.expires || Infinity) ? 0 : (one.expires || Infinity) - (other.expires || Infinity);
    default: return rank(one) - rank(other);
  }
}

const rank = (r) => (r.deleted ? 9 : ORDER.indexOf(r.phase));
