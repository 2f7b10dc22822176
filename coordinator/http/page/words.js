// Numbers as people read them.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

/** A size. */
export function bytes(count) {
  let unit = 0;
  while (count >= 1024 && unit < UNITS.length - 1) {
    count /= 1024;
    unit += 1;
  }
  return `${count >= 100 || unit === 0 ? Math.round(count) : count.toFixed(1)} ${UNITS[unit]}`;
}

/** A time. */
export function seconds(count) {
  if (count === null || count === undefined) return "–";
  if (count < 0.001) return `${Math.round(count * 1e6)} µs`;
  if (count < 1) return `${Math.round(count * 1e3)} ms`;
  return count < 120 ? `${count.toFixed(1)} s` : `${Math.round(count / 60)} min`;
}

/** A number with three digits or so. */
export function number(count) {
  if (count === null || count === undefined) return "–";
  return count >= 100 || Number.isInteger(count) ? String(Math.round(count)) : count.toFixed(1);
}

/** A share of one. */
export function percent(share) {
  return `${Math.round(100 * (share ?? 0))} %`;
}
