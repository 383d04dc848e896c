// The cluster as the server last described it: one snapshot, then changes.

const AMOUNTS = ["allocatable", "requested", "used", "reserved", "held"];
export const CORDONED = 1, NOT_READY = 2, TAINTED = 4, NO_OBJECT = 8;
const MAX_EVENTS = 1000;

export class Model {
  constructor() {
    this.listeners = new Set();
    this.loaded = false;
    this.resources = [];
    this.labels = [];
    this.nodes = new Map();
    this.reservations = new Map();
    this.pending = new Map();
    this.pendingTotal = 0;
    this.counts = {};
    this.queues = new Map();
    this.events = new Map();
    this.cluster = this.role = this.version = this.stream = "";
    this.sequence = 0;
    this.skew = 0;
  }

  /** Seconds since 1970 by the server's clock. */
  now() {
    return Date.now() / 1000 + this.skew;
  }

  /** Called with what changed: the parts by name, and the ids of changed nodes. */
  onChange(listener) {
    this.listeners.add(listener);
  }

  load(snapshot) {
    this.loaded = true;
    this.resources = snapshot.resources;
    this.cluster = snapshot.cluster;
    this.role = snapshot.role;
    this.version = snapshot.version;
    this.stream = snapshot.stream;
    this.labels = [];
    for (const each of [this.nodes, this.reservations, this.pending, this.queues, this.events]) each.clear();
    this.fields = {
      reservations: snapshot.reservations.fields,
      pending: snapshot.pending.fields,
      queues: snapshot.queues.fields,
    };
    this.apply(snapshot);
  }

  apply(changes) {
    this.sequence = changes.sequence;
    this.skew = changes.now - Date.now() / 1000;
    const changed = { nodes: null, reservations: false, pending: false, queues: false, events: null };
    if (changes.nodes) changed.nodes = this.putNodes(changes.nodes);
    for (const part of ["reservations", "pending", "queues"]) {
      if (changes[part]) {
        putRows(this[part], this.fields[part], changes[part]);
        changed[part] = true;
      }
    }
    if (changes.pending) this.pendingTotal = changes.pending.total;
    if (changes.counts) this.counts = changes.counts;
    if (changes.role !== undefined) this.role = changes.role;
    if (changes.events && changes.events.length) {
      changed.events = changes.events;
      for (const event of changes.events) {
        this.events.delete(event.id);
        this.events.set(event.id, event);
      }
      for (const id of this.events.keys()) {
        if (this.events.size <= MAX_EVENTS) break;
        this.events.delete(id);
      }
    }
    for (const listener of this.listeners) listener(changed);
  }

  putNodes(columns) {
    this.labels.push(...columns.labels);
    const changed = new Set(columns.gone);
    for (const id of columns.gone) this.nodes.delete(id);
    columns.id.forEach((id, index) => {
      const node = { id, name: columns.name[index], flags: columns.flags[index], taints: columns.taints[index], labels: columns.labelled[index] };
      for (const part of AMOUNTS) node[part] = columns[part].map((column) => column[index]);
      node.gpus = columns.gpus ? columns.gpus[index] : [];
      node.pods = columns.pods ? columns.pods[index] : null;
      this.nodes.set(id, node);
      changed.add(id);
    });
    return changed;
  }

  /**
   * Of every resource: allocatable, requested, used from reservations, reserved, held and free, in total.
   * What Waiting reservations claim beyond the capacity of a node takes nothing from others: left out.
   */
  totals() {
    const found = this.resources.map(() => [0, 0, 0, 0, 0, 0]);
    for (const node of this.nodes.values()) {
      for (let index = 0; index < found.length; index += 1) {
        const sums = found[index];
        let free = Math.max(0, node.allocatable[index] - node.requested[index]);
        const reserved = Math.min(node.reserved[index], free);
        free -= reserved;
        const held = Math.min(node.held[index], free);
        sums[0] += node.allocatable[index];
        sums[1] += node.requested[index];
        sums[2] += node.used[index];
        sums[3] += reserved;
        sums[4] += held;
        sums[5] += free - held;
      }
    }
    return found;
  }

  nodeNamed(name) {
    for (const node of this.nodes.values()) if (node.name === name) return node;
    return null;
  }

  reservationNamed(name) {
    let found = null;
    for (const each of this.reservations.values()) {
      if (each.name === name && (!found || !each.deleted || (found.deleted && each.deleted > found.deleted))) found = each;
    }
    return found;
  }
}

function putRows(rows, fields, changes) {
  for (const uid of changes.gone) rows.delete(uid);
  for (const [uid, values] of Object.entries(changes.put)) {
    const row = { uid };
    fields.forEach((field, index) => {
      row[field] = values[index];
    });
    rows.set(uid, row);
  }
}

/** Follows the server: loads a snapshot, applies changes, and starts again where the stream ends. */
export class Connection {
  constructor(model, onState) {
    this.model = model;
    this.onState = onState;
    this.failures = 0;
    this.source = null;
  }

  async start() {
    try {
      const response = await fetch("api/snapshot");
      if (response.status === 401 || response.status === 403) {
        this.onState("refused");
        return;
      }
      if (!response.ok) throw new Error(`${response.status}`);
      const snapshot = await response.json();
      performance.mark("holdfast-data");
      this.model.load(snapshot);
      this.failures = 0;
      this.follow();
    } catch {
      this.retry();
    }
  }

  follow() {
    const { stream, sequence } = this.model;
    const source = new EventSource(`api/stream?stream=${encodeURIComponent(stream)}&after=${sequence}`);
    this.source = source;
    source.onopen = () => this.onState("live");
    source.onmessage = (message) => {
      this.failures = 0;
      this.model.apply(JSON.parse(message.data));
    };
    source.addEventListener("resync", () => {
      source.close();
      this.start();
    });
    source.onerror = () => {
      source.close();
      this.retry();
    };
  }

  retry() {
    this.failures += 1;
    this.onState("lost");
    setTimeout(() => this.start(), Math.min(1000 * 2 ** Math.min(this.failures - 1, 4), 15000));
  }
}
