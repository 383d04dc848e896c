// Amounts, times and names as people read them.

const BYTES = /^(memory|ephemeral-storage|hugepages-|koordinator\.sh\/gpu-memory$)/;
const PERCENT = /^koordinator\.sh\/(gpu|gpu-core|gpu-memory-ratio)$/;
const UNITS = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

/** An amount in the unit of its resource: cores of cpu, binary units of bytes, percent of a GPU. */
export function amount(resource, value) {
  if (resource === "cpu") return decimal(value / 1000);
  if (PERCENT.test(resource)) return `${decimal(value)}%`;
  if (!BYTES.test(resource)) return decimal(value);
  let unit = 0;
  let size = value;
  while (Math.abs(size) >= 1024 && unit < UNITS.length - 1) {
    size /= 1024;
    unit += 1;
  }
  return decimal(size) + UNITS[unit];
}

function decimal(value) {
  const size = Math.abs(value);
  if (size >= 10000) return Math.round(value).toLocaleString("en");
  if (size >= 100 || Number.isInteger(value)) return String(Math.round(value));
  return String(Number(value.toFixed(size >= 10 ? 1 : 2)));
}

/** `4 cpu, 8Gi memory` */
export function amounts(byName) {
  const found = Object.entries(byName || {}).filter(([, value]) => value);
  return found.map(([name, value]) => `${amount(name, value)} ${isClaimed(name) && value === 1 ? short(name).slice(0, -1) : short(name)}`).join(", ") || "nothing";
}

/** Devices of a DRA driver, which claims get. */
export const isClaimed = (resource) => resource.endsWith("/devices");

export function short(resource) {
  if (resource === "ephemeral-storage") return "storage";
  if (isClaimed(resource)) return resource.replace("/", " ");
  const slash = resource.indexOf("/");
  return slash < 0 ? resource : resource.slice(slash + 1);
}

/** What to call a resource in a heading. */
export function title(resource) {
  if (resource === "cpu") return "CPU";
  if (isClaimed(resource)) return short(resource);
  const name = short(resource);
  return name === "gpu" ? "GPU" : name.charAt(0).toUpperCase() + name.slice(1);
}

/** `45s`, `12m`, `3h 20m`, `2d 4h` */
export function duration(seconds) {
  const total = Math.max(0, Math.round(seconds));
  if (total < 60) return `${total}s`;
  if (total < 3600) return total < 600 && total % 60 ? `${Math.floor(total / 60)}m ${total % 60}s` : `${Math.floor(total / 60)}m`;
  const hours = Math.floor(total / 3600);
  if (hours < 24) {
    const minutes = Math.floor((total % 3600) / 60);
    return minutes ? `${hours}h ${minutes}m` : `${hours}h`;
  }
  const days = Math.floor(hours / 24);
  return hours % 24 && days < 10 ? `${days}d ${hours % 24}h` : `${days}d`;
}

export function clock(seconds, withDate = false) {
  const date = new Date(seconds * 1000);
  const time = date.toLocaleTimeString("en-GB");
  return withDate ? `${date.toLocaleDateString("sv-SE")} ${time}` : time;
}

export function percent(part, whole) {
  if (!whole) return part ? "∞" : "0%";
  const value = (100 * part) / whole;
  return `${value > 0 && value < 1 ? "<1" : Math.round(value)}%`;
}

export function count(number, noun) {
  return `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
}

const collator = new Intl.Collator("en", { numeric: true });
/** node-9 before node-10. */
export const byName = (one, other) => collator.compare(one, other);
