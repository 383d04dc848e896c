// A grid of rows of which only the visible ones exist, for thousands of rows; keyboard and screen
// readers find in it what they find in a whole table.

import { fill, h } from "./dom.js";

const MARGIN = 6;
const NARROW = 640;
const MIDDLE = 960;

export class List {
  /**
   * columns: {key, title, sorts, class}; render(item) returns the cells; key(item) a string;
   * open(item) is called on Enter or a click. Rows are `narrowHeight` high where the list is too
   * narrow for its columns.
   */
  constructor({ label, name, columns, rowHeight, narrowHeight, render, key, open, sorted, empty, rowClass }) {
    Object.assign(this, { render, key, open, sorted, rowClass });
    this.emptyText = empty;
    this.heights = [rowHeight, narrowHeight];
    this.rowHeight = rowHeight;
    this.leastWidth = 0;
    this.items = [];
    this.rows = new Map();
    this.active = 0;
    this.chosen = null;
    this.head = h("div", { role: "row", class: "row head" });
    this.body = h("div", { role: "rowgroup", class: "rows" });
    this.element = h(
      "div",
      { class: `list ${name}`, role: "grid", "aria-label": label, "aria-rowcount": 1 },
      h("div", { role: "rowgroup", class: "heads" }, this.head),
      this.body,
    );
    this.empty = h("p", { class: "empty", hidden: true });
    this.box = h("div", { class: "list-box" }, this.element, this.empty);
    this.box.addEventListener("scroll", () => this.paint(), { passive: true });
    this.body.addEventListener("keydown", (event) => this.keyed(event));
    this.body.addEventListener("click", (event) => this.clicked(event));
    this.body.addEventListener("focusin", (event) => {
      const row = event.target.closest(".row");
      if (row) this.activate(Number(row.dataset.index), false);
    });
    this.observer = new ResizeObserver(() => this.fit());
    this.observer.observe(this.box);
    this.setColumns(columns);
  }

  setColumns(columns, sort = "") {
    this.columns = columns;
    this.element.setAttribute("aria-colcount", columns.length);
    this.setSort(sort);
    this.repaint();
  }

  setSort(sort) {
    fill(
      this.head,
      this.columns.map((column) => {
        const direction = sort === column.key ? "ascending" : sort === `-${column.key}` ? "descending" : null;
        const content = column.sorts
          ? h("button", { type: "button", class: "sort", title: column.title, onclick: () => this.sorted(column.key) }, column.title, h("span", { class: "arrow", "aria-hidden": "true" }, direction === "ascending" ? "▲" : direction === "descending" ? "▼" : ""))
          : column.head || h("span", null, column.title);
        return h("div", { role: "columnheader", class: `cell ${column.class || ""}`, "aria-sort": column.sorts ? direction || "none" : null }, content);
      }),
    );
  }

  setHeights(wide, narrow) {
    this.heights = [wide, narrow];
    this.fit();
  }

  fit() {
    const width = this.box.clientWidth;
    const narrow = width > 0 && width < Math.max(NARROW, this.leastWidth);
    this.element.classList.toggle("narrow", narrow);
    this.element.classList.toggle("middle", !narrow && width < MIDDLE);
    const height = this.heights[narrow ? 1 : 0];
    if (this.rowHeight !== height) {
      this.rowHeight = height;
      this.repaint();
    } else this.paint();
  }

  /** Shows these items; rows whose key is in `changed` (or all, if it is null) are made again. */
  show(items, changed = null) {
    const focused = this.body.contains(document.activeElement) ? this.items[this.active] : null;
    this.items = items;
    if (focused) {
      const at = items.findIndex((item) => this.key(item) === this.key(focused));
      if (at >= 0) this.active = at;
    }
    this.active = Math.min(this.active, Math.max(items.length - 1, 0));
    this.element.setAttribute("aria-rowcount", items.length + 1);
    this.body.style.height = `${items.length * this.rowHeight}px`;
    this.empty.hidden = items.length > 0;
    this.empty.textContent = items.length ? "" : this.emptyText();
    this.element.classList.toggle("none", !items.length);
    for (const [key, row] of this.rows) {
      if (changed === null || changed.has(key)) row.stale = true;
    }
    this.paint();
  }

  repaint() {
    for (const row of this.rows.values()) row.stale = true;
    this.body.style.height = `${this.items.length * this.rowHeight}px`;
    this.paint();
  }

  paint() {
    const top = this.box.scrollTop - this.head.offsetHeight;
    const height = this.box.clientHeight || 800;
    const first = Math.max(0, Math.floor(top / this.rowHeight) - MARGIN);
    const last = Math.min(this.items.length, Math.ceil((top + height) / this.rowHeight) + MARGIN);
    const wanted = new Set();
    const focusedAway = this.body.contains(document.activeElement) ? this.active : -1;
    for (let index = first; index < last; index += 1) wanted.add(index);
    if (this.items.length) wanted.add(Math.min(this.active, this.items.length - 1));
    if (focusedAway >= 0 && focusedAway < this.items.length) wanted.add(focusedAway);
    const kept = new Set();
    for (const index of wanted) {
      const item = this.items[index];
      const key = this.key(item);
      kept.add(key);
      let row = this.rows.get(key);
      if (!row) {
        row = { element: h("div", { role: "row", class: "row" }), stale: true, item: null };
        this.rows.set(key, row);
        this.body.append(row.element);
      }
      const element = row.element;
      if (row.stale || row.item !== item) {
        row.stale = false;
        row.item = item;
        const cells = this.render(item);
        fill(
          element,
          cells.map((cell, column) => h("div", { role: "gridcell", class: `cell ${this.columns[column].class || ""}` }, cell)),
        );
        element.className = `row ${this.rowClass ? this.rowClass(item) : ""}`;
      }
      element.dataset.index = index;
      element.setAttribute("aria-rowindex", index + 2);
      element.tabIndex = index === this.active ? 0 : -1;
      element.classList.toggle("odd", index % 2 === 1);
      const isChosen = this.chosen === key;
      element.classList.toggle("chosen", isChosen);
      element.setAttribute("aria-selected", String(isChosen));
      element.style.height = `${this.rowHeight}px`;
      element.style.transform = `translateY(${index * this.rowHeight}px)`;
    }
    for (const [key, row] of this.rows) {
      if (!kept.has(key)) {
        row.element.remove();
        this.rows.delete(key);
      }
    }
  }

  choose(key) {
    if (this.chosen !== key) {
      this.chosen = key;
      this.paint();
      if (key !== null) this.reveal(key);
    }
  }

  activate(index, focus = true) {
    if (!this.items.length) return;
    this.active = Math.min(Math.max(index, 0), this.items.length - 1);
    const top = this.active * this.rowHeight;
    const head = this.head.offsetHeight;
    if (focus) {
      if (top < this.box.scrollTop) this.box.scrollTop = top;
      else if (top + this.rowHeight + head > this.box.scrollTop + this.box.clientHeight) {
        this.box.scrollTop = top + this.rowHeight + head - this.box.clientHeight;
      }
    }
    this.paint();
    if (focus) this.rows.get(this.key(this.items[this.active]))?.element.focus({ preventScroll: true });
  }

  /** Scrolls to a row that is not in sight. */
  reveal(key) {
    const top = this.items.findIndex((item) => this.key(item) === key) * this.rowHeight;
    const { scrollTop, clientHeight } = this.box;
    if (top < scrollTop || top + this.rowHeight + this.head.offsetHeight > scrollTop + clientHeight) this.scrollTo(key);
  }

  scrollTo(key) {
    const index = this.items.findIndex((item) => this.key(item) === key);
    if (index >= 0) {
      this.active = index;
      this.box.scrollTop = Math.max(0, index * this.rowHeight - this.box.clientHeight / 2);
      this.paint();
    }
  }

  focus() {
    this.activate(this.active);
  }

  keyed(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const page = Math.max(1, Math.floor(this.box.clientHeight / this.rowHeight) - 2);
    const moves = { ArrowDown: 1, ArrowUp: -1, j: 1, k: -1, PageDown: page, PageUp: -page };
    if (event.key in moves) this.activate(this.active + moves[event.key]);
    else if (event.key === "Home") this.activate(0);
    else if (event.key === "End") this.activate(this.items.length - 1);
    else if ((event.key === "Enter" || event.key === " ") && event.target.classList.contains("row")) this.open(this.items[this.active]);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  clicked(event) {
    if (event.target.closest("a, button")) return;
    const row = event.target.closest(".row");
    if (row && !String(getSelection())) this.open(this.items[Number(row.dataset.index)]);
  }
}
