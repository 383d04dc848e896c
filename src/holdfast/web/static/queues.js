// The queues: what each has, deserves and may have at most.

import { bar } from "./charts.js";
import { fill, h } from "./dom.js";
import { amount, byName, percent, title } from "./format.js";

export class QueuesView {
  constructor(model, app) {
    Object.assign(this, { model, app });
    this.filter = "";
    this.content = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Shares of queues" });
    const key = h("ul", { class: "key", "aria-label": "Key of the queues" }, [["pods", "allocated"], ["above", "allocated above deserved"], ["deserved", "deserved, not allocated"]].map(([kind, text]) => h("li", null, bar([{ kind, value: 1 }], 1), text)));
    this.tools = h("div", { class: "tools" }, key);
    this.element = h("section", { class: "view", "aria-label": "Queues" }, this.tools, this.content);
    this.filterHelp = "name";
  }

  setOptions(options, chosen) {
    this.chosen = chosen;
    this.filter = options.get("filter") || "";
    this.refresh();
  }

  shown() {
    this.refresh();
  }

  changed(changes) {
    if (changes.queues || changes.nodes) this.refresh();
  }

  refresh() {
    const queues = [...this.model.queues.values()].filter((queue) => queue.name.toLowerCase().includes(this.filter.toLowerCase()));
    const children = Map.groupBy ? Map.groupBy(queues, (queue) => queue.parent) : grouped(queues);
    const names = new Set(queues.map((queue) => queue.name));
    const found = [];
    const visit = (queue, depth) => {
      found.push([queue, depth]);
      for (const child of (children.get(queue.name) || []).sort((a, b) => byName(a.name, b.name))) if (depth < 16) visit(child, depth + 1);
    };
    for (const queue of queues.filter((each) => !names.has(each.parent)).sort((a, b) => byName(a.name, b.name))) visit(queue, 0);
    this.tools.hidden = !found.length;
    if (!found.length) {
      fill(this.content, h("p", { class: "empty" }, this.filter ? "No queue matches the filter." : "There are no queues: all pods share the cluster by priority."));
      return;
    }
    const totals = Object.fromEntries(this.model.totals().map((amounts, index) => [this.model.resources[index], amounts[0]]));
    fill(this.content, h("table", { class: "queues", role: "table" },
      h("caption", { class: "sr" }, "Queues with their shares"),
      h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, ["Queue", "Weight", "Share of deserved", "Allocated, deserved and limit"].map((text) => h("th", { scope: "col", role: "columnheader" }, text)))),
      h("tbody", { role: "rowgroup" }, found.map(([queue, depth]) => this.row(queue, depth, totals)))));
  }

  row(queue, depth, totals) {
    const closed = queue.state !== "Open";
    const names = Object.keys({ ...queue.allocated, ...queue.deserved, ...queue.requested }).filter((name) => name !== "pods" && (queue.allocated[name] || queue.deserved[name] || queue.requested[name]));
    const shareText = queue.share === null ? "–" : queue.share < 0 ? "above" : `${Math.round(100 * queue.share)}%`;
    const name = h("th", { scope: "row", role: "rowheader" }, h("a", { href: this.app.link("queues", [queue.name]), "aria-current": queue.name === this.chosen ? "true" : null }, queue.name), " ", closed && h("span", { class: "badge warn" }, queue.state), " ", !queue.reclaimable && h("span", { class: "badge calm" }, "not reclaimable"));
    name.style.setProperty("--depth", depth);
    // Where the screen is narrow, rows are no longer laid out as those of a table; roles say what they are.
    return h("tr", { role: "row" },
      name,
      h("td", { role: "cell", class: "number weight" }, String(queue.weight)),
      h("td", { role: "cell", class: `number of-deserved${queue.share > 1 || queue.share < 0 ? " warn-text" : ""}` }, shareText),
      h("td", { role: "cell" }, names.length ? names.map((resource) => this.amounts(queue, resource, totals[resource] || 0)) : h("span", { class: "dim" }, "nothing allocated or requested")));
  }

  amounts(queue, resource, total) {
    const has = queue.allocated[resource] || 0;
    const deserved = queue.deserved[resource] || 0;
    const limit = queue.capability ? queue.capability[resource] : undefined;
    const scale = Math.max(total, has, deserved, 1);
    const svg = bar([{ value: Math.min(has, deserved), kind: "pods" }, { value: Math.max(0, has - deserved), kind: "above" }, { value: Math.max(0, deserved - has), kind: "deserved" }], scale);
    const parts = [`${amount(resource, has)} allocated (${percent(has, total)} of cluster)`, `${amount(resource, deserved)} deserved`];
    const pending = Math.max(0, (queue.requested[resource] || 0) - has);
    if (pending) parts.push(`${amount(resource, pending)} pending`);
    if (limit !== undefined) parts.push(`limit ${amount(resource, limit)}`);
    if (queue.guarantee[resource]) parts.push(`${amount(resource, queue.guarantee[resource])} guaranteed`);
    return h("div", { class: "share" }, h("span", { class: "what" }, title(resource)), svg, h("span", { class: "figures" }, parts.join(" · ")));
  }
}

function grouped(queues) {
  const found = new Map();
  for (const queue of queues) found.set(queue.parent, [...(found.get(queue.parent) || []), queue]);
  return found;
}
